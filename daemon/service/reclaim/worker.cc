// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/worker.h"

#include <pthread.h>

#include <utility>

namespace arraybridge::daemon {

Worker::Worker(const std::string& name) : thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), name.c_str());
}

Worker::~Worker() { Stop(); }

void Worker::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    timers_.clear();
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Worker::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
    ++posted_;
  }
  changed_.NotifyOne();
}

void Worker::PostAt(TimePoint when, Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    timers_.emplace(when, std::move(task));
  }
  changed_.NotifyOne();
}

bool Worker::WaitIdle(TimePoint deadline) {
  MutexLock lock(mutex_);
  const uint64_t goal = posted_;
  while (finished_ < goal) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    progressed_.WaitUntil(mutex_, deadline);
  }
  return true;
}

void Worker::Run() {
  while (Task task = Next()) task();
}

// An empty task means that the worker has stopped.
Worker::Task Worker::Next() {
  MutexLock lock(mutex_);
  while (true) {
    Task task;
    if (TakeDue(&task)) return task;
    if (stopping_) return nullptr;
    if (timers_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    changed_.WaitUntil(mutex_, timers_.begin()->first);
  }
}

// A due timer comes first, because it has waited longer than the posted tasks.
bool Worker::TakeDue(Task* task) {
  if (!timers_.empty() && timers_.begin()->first <= std::chrono::steady_clock::now()) {
    *task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    return true;
  }
  if (tasks_.empty()) return false;
  Task posted = std::move(tasks_.front());
  tasks_.pop_front();
  *task = [this, posted = std::move(posted)]() mutable {
    posted();
    posted = nullptr;  // destroys what the task owns before the task counts as finished
    MutexLock lock(mutex_);
    ++finished_;
    progressed_.NotifyAll();
  };
  return true;
}

}  // namespace arraybridge::daemon
