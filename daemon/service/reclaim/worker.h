// A Worker is one thread that does what its callers must not wait for: tasks in the order they came, and tasks whose
// time has come. What may populate, copy or destroy runs on one; what must be punctual runs on another.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Worker {
 public:
  using Task = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // `name`: at most 15 bytes, shown by ps and top.
  explicit Worker(const std::string& name);
  // Runs what was posted before, drops what was not due yet. What its own last tasks post is dropped.
  ~Worker();
  // The same, before it dies: whoever still posts to it then, posts in vain. Idempotent, not thread-safe.
  void Stop() AB_EXCLUDES(mutex_);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(Task task) AB_EXCLUDES(mutex_);
  // Not before `when`; soon after it, unless the thread is busy.
  void PostAt(TimePoint when, Task task) AB_EXCLUDES(mutex_);
  // Returns once every task posted before this call has run, or at `deadline`: then false.
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

}  // namespace arraybridge
