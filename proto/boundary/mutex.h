// SPDX-License-Identifier: Apache-2.0
// A Mutex with annotations for clang's -Wthread-safety, which std::lock_guard lacks in libstdc++.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define AB_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define AB_THREAD_ANNOTATION(x)
#endif
#define AB_GUARDED_BY(x) AB_THREAD_ANNOTATION(guarded_by(x))
#define AB_REQUIRES(x) AB_THREAD_ANNOTATION(requires_capability(x))
#define AB_EXCLUDES(x) AB_THREAD_ANNOTATION(locks_excluded(x))

namespace arraybridge {

class AB_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() AB_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  bool try_lock() AB_THREAD_ANNOTATION(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() AB_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class AB_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) AB_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() AB_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits on a Mutex that the caller holds. Wake-ups can be spurious: wait in a loop. wait() needs GCC 12's libstdc++.
class ConditionVariable {
 public:
  void Wait(Mutex& mutex) AB_REQUIRES(mutex) { WaitUntil(mutex, std::chrono::steady_clock::time_point::max()); }
  void WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) AB_REQUIRES(mutex) {
    condition_.wait_until(mutex, deadline);
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace arraybridge
