// SPDX-License-Identifier: Apache-2.0
// A HazardPage is the hazard page of one session and one namespace: the session writes into it which shares it reads,
// and the broker only reads it (proto/boundary/layouts/hazard.h). The broker compares its words; it never uses one as
// an index or a length.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/shared_pages/shared_pages.h"
#include "proto/boundary/layouts/hazard.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

class HazardPage {
 public:
  // RESOURCE_EXHAUSTED: no descriptor or no memory.
  static Result<std::unique_ptr<HazardPage>> Create();
  // The page of a session that another daemon served. As SharedPages::Adopt.
  static Result<std::unique_ptr<HazardPage>> Adopt(UniqueFd file);
  ~HazardPage() = default;
  HazardPage(const HazardPage&) = delete;
  HazardPage& operator=(const HazardPage&) = delete;

  // Opens a new writable description for the session. FAILED_PRECONDITION after Seal.
  Result<UniqueFd> Export() const;
  // A read-only description for the next daemon. FAILED_PRECONDITION after Seal.
  Result<UniqueFd> ExportForNextDaemon() const { return pages_->Export(false); }
  // Called after the session has mapped the page: from now on no process can map it writable or release its memory.
  // Idempotent.
  Status Seal();
  bool sealed() const { return pages_->sealed(); }

  const hazard::Page& page() const { return page_; }
  bool Has(uint64_t word) const { return hazard::Has(page_, word); }
  // Visits each word as often as it occurs.
  template <class Visit>
  void ForEach(Visit visit) const {
    hazard::ForEach(page_, visit);
  }
  uint64_t count() const;

  StoreGuard stored;

 private:
  explicit HazardPage(std::unique_ptr<SharedPages> pages)
      : pages_(std::move(pages)), page_(*static_cast<const hazard::Page*>(pages_->base())) {}

  const std::unique_ptr<SharedPages> pages_;  // Seal closes their file
  const hazard::Page& page_;
};

}  // namespace arraybridge::daemon
