// SPDX-License-Identifier: Apache-2.0
// QueuePages maps a session's queue (proto/boundary/layouts/session_queue.h): the page of requests writable, the page
// of completions read-only. Not mapped in forked children, which must not send requests for their parent.
#pragma once

#include <cstdint>
#include <memory>

#include "client/lifeline/shared_mapping.h"
#include "proto/boundary/layouts/session_queue.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// As thread-safe as its members.
class QueuePages {
 public:
  // FAILED_PRECONDITION: another layout, or a file that could shrink. RESOURCE_EXHAUSTED: no address space.
  static Result<std::unique_ptr<QueuePages>> Map(const UniqueFd& requests, const UniqueFd& completions);

  // The slots of requests that the daemon has taken, and the slots of the unwaited publishes among them that it has
  // served.
  uint64_t taken() const { return Load(theirs_.progress.taken, std::memory_order_acquire); }
  uint64_t served() const { return Load(theirs_.progress.served, std::memory_order_acquire); }
  born::Figures& born() { return own_.preamble.born; }

 private:
  QueuePages(SharedMapping own, SharedMapping theirs);

  const SharedMapping own_pages_;
  const SharedMapping their_pages_;
  session_queue::Page& own_;
  const session_queue::Page& theirs_;

 public:
  spsc::Writer<session_queue::Format> requests;
  spsc::Reader<session_queue::Format> completions;
  spsc::Doorbell doorbell;
};

}  // namespace arraybridge
