// DeferredErrors are what became of publishes that nobody waited for and that failed, until somebody asks: nothing is
// lost in silence.
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
  // The share did not come to be; `why` says in which way.
  void Add(std::string_view share, const Status& why) AB_EXCLUDES(mutex_);
  // All since the last time: the first one's code and reason, its share's name, and how many more there were. OK if
  // there was none.
  Status Take() AB_EXCLUDES(mutex_);
  // The same with one more, the latest; `why` itself if there was none before.
  Status TakeBefore(std::string_view share, const Status& why) AB_EXCLUDES(mutex_);

 private:
  std::atomic<bool> any_{false};
  Mutex mutex_;
  Status first_ AB_GUARDED_BY(mutex_);
  uint64_t more_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge
