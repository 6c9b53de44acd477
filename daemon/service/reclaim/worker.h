// SPDX-License-Identifier: Apache-2.0
// A Worker is one thread for work that its callers must not wait for: tasks in the order of their posting, and tasks at
// a certain time. Work that may populate, copy or destroy memory runs on one worker, punctual work on another.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// Thread-safe.
class Worker {
 public:
  using Task = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // `name`: at most 15 bytes, shown by ps and top.
  explicit Worker(const std::string& name);
  // Runs the tasks that were posted before, drops tasks that are not due, and drops tasks that its last tasks post.
  ~Worker();
  // Does the same before the destruction. Later posts are dropped. Idempotent, not thread-safe.
  void Stop() AB_EXCLUDES(mutex_);

  void Post(Task task) AB_EXCLUDES(mutex_);
  // Runs the task not before `when`, and soon after it unless the thread is busy.
  void PostAt(TimePoint when, Task task) AB_EXCLUDES(mutex_);
  // Returns true when every task posted before this call has run; false at `deadline`.
  bool WaitIdle(TimePoint deadline) AB_EXCLUDES(mutex_);

 private:
  void Run() AB_EXCLUDES(mutex_);
  Task Next() AB_EXCLUDES(mutex_);
  bool TakeDue(Task* task) AB_REQUIRES(mutex_);

  Mutex mutex_;
  ConditionVariable changed_;
  ConditionVariable progressed_;
  std::deque<Task> tasks_ AB_GUARDED_BY(mutex_);
  std::multimap<TimePoint, Task> timers_ AB_GUARDED_BY(mutex_);
  uint64_t posted_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t finished_ AB_GUARDED_BY(mutex_) = 0;
  bool stopping_ AB_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace arraybridge::daemon
