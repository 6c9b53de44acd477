// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/watchdog.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "daemon/service/system/notify.h"

namespace arraybridge::daemon {
namespace {

constexpr int kRoundsPerPatience = 4;

}  // namespace

struct Watchdog::Round {
  Mutex mutex;
  ConditionVariable changed;
  size_t answers AB_GUARDED_BY(mutex) = 0;
  bool stopping AB_GUARDED_BY(mutex) = false;
};

std::optional<std::chrono::microseconds> Watchdog::Wanted() {
  const auto meant_for = NumberFromManager("WATCHDOG_PID");
  const auto patience = NumberFromManager("WATCHDOG_USEC");
  if (!patience || *patience <= 0 || (meant_for && *meant_for != ::getpid())) return std::nullopt;
  return std::chrono::microseconds(*patience);
}

Watchdog::Watchdog(std::chrono::microseconds patience, std::vector<Loop> loops, std::function<void()> tell)
    : period_(patience / kRoundsPerPatience),
      loops_(std::move(loops)),
      tell_(std::move(tell)),
      round_(std::make_shared<Round>()),
      thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(round_->mutex);
    round_->stopping = true;
  }
  round_->changed.NotifyAll();
  thread_.join();
}

void Watchdog::Run() {
  ::pthread_setname_np(::pthread_self(), "ab-watchdog");
  while (true) {
    const auto next = std::chrono::steady_clock::now() + period_;
    for (const Loop& loop : loops_) {
      loop([round = round_] {
        MutexLock lock(round->mutex);
        ++round->answers;
        round->changed.NotifyAll();
      });
    }
    {
      MutexLock lock(round_->mutex);
      while (round_->answers < loops_.size() && !round_->stopping) round_->changed.Wait(round_->mutex);
      if (round_->stopping) return;
      round_->answers = 0;
    }
    tell_();
    MutexLock lock(round_->mutex);
    while (std::chrono::steady_clock::now() < next && !round_->stopping) {
      round_->changed.WaitUntil(round_->mutex, next);
    }
    if (round_->stopping) return;
  }
}

}  // namespace arraybridge::daemon
