// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/closer.h"

#include <pthread.h>

#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kThreadsMax = 64;

class Closer {
 public:
  void Take(UniqueFd descriptor) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(descriptor));
    if (waiting_.size() > idle_ && threads_ < kThreadsMax) StartThread();
    changed_.NotifyOne();
  }

 private:
  void StartThread() AB_REQUIRES(mutex_) {
    try {
      std::thread([this] { Run(); }).detach();
      ++threads_;
      ++idle_;
    } catch (const std::system_error&) {  // no new thread: a running thread closes it, or the next that starts
    }
  }

  void Run() AB_EXCLUDES(mutex_) {
    ::pthread_setname_np(::pthread_self(), "ab-closer");
    while (true) {
      Next().reset();
      const MutexLock lock(mutex_);
      if (idle_ > waiting_.size()) {  // a thread that sleeps is left for the next descriptor: one is enough
        --threads_;
        return;
      }
      ++idle_;
    }
  }

  UniqueFd Next() AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (waiting_.empty()) changed_.Wait(mutex_);
    --idle_;
    UniqueFd next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<UniqueFd> waiting_ AB_GUARDED_BY(mutex_);
  size_t threads_ AB_GUARDED_BY(mutex_) = 0;
  size_t idle_ AB_GUARDED_BY(mutex_) = 0;  // includes threads that are starting
};

}  // namespace

void CloseAside(UniqueFd descriptor) {
  if (!descriptor.valid()) return;
  static Closer& closer = *new Closer;  // never destroyed: its threads may be blocked when the process exits
  closer.Take(std::move(descriptor));
}

}  // namespace arraybridge::daemon
