// Errands are what other threads ask of the main thread, which waits for their descriptor beside its own.
#pragma once

#include <sys/eventfd.h>

#include <functional>
#include <utility>
#include <vector>

#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class Errands {
 public:
  Errands() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { AB_CHECK(wake_.valid()); }

  // Thread-safe. Dropped without being run if nobody runs errands any more.
  void Post(std::function<void()> errand) AB_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return;
      waiting_.push_back(std::move(errand));
    }
    ::eventfd_write(wake_.get(), 1);
  }
  // Readable while something waits.
  int descriptor() const { return wake_.get(); }
  // Of the main thread.
  void Run() AB_EXCLUDES(mutex_) {
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    for (const auto& errand : Taken(false)) errand();
  }
  // Nobody runs them any more: what waits is dropped.
  void Close() AB_EXCLUDES(mutex_) { Taken(true); }

 private:
  std::vector<std::function<void()>> Taken(bool closed) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    closed_ = closed;
    return std::exchange(waiting_, {});
  }

  UniqueFd wake_;
  Mutex mutex_;
  std::vector<std::function<void()>> waiting_ AB_GUARDED_BY(mutex_);
  bool closed_ AB_GUARDED_BY(mutex_) = false;
};

}  // namespace arraybridge
