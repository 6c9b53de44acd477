// SPDX-License-Identifier: Apache-2.0
// A MainThreadQueue holds tasks that other threads post to the main thread. The main thread polls its descriptor.
#pragma once

#include <sys/eventfd.h>

#include <functional>
#include <utility>
#include <vector>

#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

class MainThreadQueue {
 public:
  MainThreadQueue() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { AB_CHECK(wake_.valid()); }

  // Thread-safe. A task that is posted after Close is dropped.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return;
      waiting_.push_back(std::move(task));
    }
    ::eventfd_write(wake_.get(), 1);
  }
  // Readable while a task waits.
  int descriptor() const { return wake_.get(); }
  // The main thread calls this.
  void Run() AB_EXCLUDES(mutex_) {
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    for (const auto& task : Taken(false)) task();
  }
  // Drops the tasks that wait and those that are posted later.
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

}  // namespace arraybridge::daemon
