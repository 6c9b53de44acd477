// SPDX-License-Identifier: Apache-2.0
// DeferredErrors keeps the errors of failed unwaited publishes until the caller asks for them, so that none is lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class DeferredErrors {
 public:
  // Records that `share` was not published; `why` is the reason.
  void Add(std::string_view share, const Status& why) AB_EXCLUDES(mutex_);
  // Takes all errors since the last call: the code and reason of the first, the name of its share, and the number of
  // further errors. OK if there were none.
  Status Take() AB_EXCLUDES(mutex_);
  // As Take, with one more error, the latest. Returns `why` itself if there were no others.
  Status TakeBefore(std::string_view share, const Status& why) AB_EXCLUDES(mutex_);

 private:
  std::atomic<bool> any_{false};
  Mutex mutex_;
  Status first_ AB_GUARDED_BY(mutex_);
  uint64_t more_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge
