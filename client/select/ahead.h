// SPDX-License-Identifier: Apache-2.0
// An Ahead calls a function that waits, on a thread of its own, and keeps one result until it is taken. Its descriptor
// is readable while a result is there.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lifeline/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe.
template <class T>
class Ahead {
 public:
  using Receive = std::function<Result<T>()>;

  // `end`: makes each later call of `receive` return at once.
  Ahead(Receive receive, std::function<void()> end)
      : receive_(std::move(receive)), end_(std::move(end)), event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    AB_CHECK(event_.get() >= 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~Ahead() {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    end_();
    thread_.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  int fileno() const { return event_.get(); }

  // Nothing: there is none before `until`.
  std::optional<Result<T>> Take(std::optional<Deadline> until) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!kept_ && (!until || std::chrono::steady_clock::now() < *until)) {
      if (until)
        changed_.WaitUntil(mutex_, *until);
      else
        changed_.Wait(mutex_);
    }
    if (kept_) {
      eventfd_t count = 0;
      AB_CHECK(::eventfd_read(event_.get(), &count) == 0);
      changed_.NotifyAll();
    }
    return std::exchange(kept_, std::nullopt);
  }

 private:
  void Run() AB_EXCLUDES(mutex_) {
    while (true) {
      {
        const MutexLock lock(mutex_);
        while (kept_ && !stopped_) changed_.Wait(mutex_);
        if (stopped_) return;
      }
      auto received = receive_();
      if (received.status().code() == Code::kCancelled) continue;  // Options::interrupted is for threads of the user
      const MutexLock lock(mutex_);
      kept_.emplace(std::move(received));
      AB_CHECK(::eventfd_write(event_.get(), 1) == 0);
      changed_.NotifyAll();
    }
  }

  const Receive receive_;
  const std::function<void()> end_;
  const UniqueFd event_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool stopped_ AB_GUARDED_BY(mutex_) = false;
  std::optional<Result<T>> kept_ AB_GUARDED_BY(mutex_);
  std::thread thread_;  // the last member, because it uses the others
};

}  // namespace arraybridge
