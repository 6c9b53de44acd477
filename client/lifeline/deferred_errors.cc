// SPDX-License-Identifier: Apache-2.0
#include "client/lifeline/deferred_errors.h"

#include <utility>

namespace arraybridge {

void DeferredErrors::Add(std::string_view share, const Status& why) {
  const MutexLock lock(mutex_);
  if (any_.exchange(true, std::memory_order_relaxed)) {
    ++more_;
    return;
  }
  first_ =
      Status(why.code(), Concat("the unwaited publish of share '", share, "' failed: ", why.message()), why.reason());
}

Status DeferredErrors::Take() {
  if (!any_.load(std::memory_order_relaxed)) return Ok();
  const MutexLock lock(mutex_);
  any_.store(false, std::memory_order_relaxed);
  Status first = std::exchange(first_, Ok());
  const uint64_t more = std::exchange(more_, 0);
  if (first.ok() || more == 0) return first;
  return Status(first.code(), Concat(first.message(), " (and ", more, " more)"), first.reason());
}

Status DeferredErrors::TakeBefore(std::string_view share, const Status& why) {
  if (!any_.load(std::memory_order_relaxed)) return why;
  Add(share, why);
  return Take();
}

}  // namespace arraybridge
