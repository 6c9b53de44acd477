// A WrittenRing is a session's publish ring and its Bell as this process maps them (proto/boundary/ring_layout.h): the
// ring writable, the Bell read-only. A forked child has neither: it must not publish for its parent.
#pragma once

#include <memory>

#include "client/own_pages.h"
#include "proto/boundary/result.h"
#include "proto/boundary/ring_layout.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class WrittenRing {
 public:
  // FAILED_PRECONDITION: they are none that this client can use, or could shrink. RESOURCE_EXHAUSTED: no address space.
  static Result<std::unique_ptr<WrittenRing>> Map(const UniqueFd& entries, const UniqueFd& bell);
  WrittenRing(const WrittenRing&) = delete;
  WrittenRing& operator=(const WrittenRing&) = delete;

  ring::Page& page() { return page_; }
  const ring::Bell& bell() const { return bell_; }

 private:
  WrittenRing(OwnPages entries, OwnPages bell);

  const OwnPages entries_;
  const OwnPages bell_pages_;
  ring::Page& page_;
  const ring::Bell& bell_;
};

}  // namespace arraybridge
