// A HoldsPage is what one session says it reads of one namespace: a page that the session writes, and the broker only
// looks at (proto/boundary/holds_layout.h). Whatever stands there is compared, never used as an index or a length.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "daemon/memory/shared_pages.h"
#include "proto/boundary/holds_layout.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class HoldsPage {
 public:
  // RESOURCE_EXHAUSTED: no descriptor, no memory.
  static Result<std::unique_ptr<HoldsPage>> Create();
  ~HoldsPage() = default;
  HoldsPage(const HoldsPage&) = delete;
  HoldsPage& operator=(const HoldsPage&) = delete;

  // A writable description of its own, for its session. FAILED_PRECONDITION once it is sealed.
  Result<UniqueFd> Export() const;
  // The session has mapped it: nobody can map it writable any more, nor take its memory away. Idempotent.
  Status Seal();
  bool sealed() const { return pages_->sealed(); }

  const holds::Page& page() const { return page_; }
  bool Has(uint64_t hold) const { return holds::Has(page_, hold); }
  // Each hold once for every time that it is there.
  template <class Visit>
  void ForEach(Visit visit) const {
    holds::ForEach(page_, visit);
  }
  uint64_t count() const;

 private:
  explicit HoldsPage(std::unique_ptr<SharedPages> pages)
      : pages_(std::move(pages)), page_(*static_cast<const holds::Page*>(pages_->base())) {}

  const std::unique_ptr<SharedPages> pages_;  // whose file is closed once it is sealed
  const holds::Page& page_;
};

}  // namespace arraybridge
