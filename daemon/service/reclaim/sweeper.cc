// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/sweeper.h"

#include <algorithm>
#include <utility>

namespace arraybridge::daemon {

Sweeper::Sweeper(Broker& broker, Worker& worker, HeapTrimmer& heap, std::function<void()> swept,
                 std::function<bool(Look)> poll_hazards)
    : broker_(broker), worker_(worker), heap_(heap), swept_(std::move(swept)), poll_hazards_(std::move(poll_hazards)) {}

void Sweeper::Soon() {
  {
    MutexLock lock(mutex_);
    retry_ = kGrain;
  }
  if (posted_.exchange(true)) return;
  worker_.Post([this] { Sweep(); });
}

void Sweeper::After(std::chrono::milliseconds delay) { At(Clock::now() + delay); }

void Sweeper::At(Clock::time_point requested) {
  const Clock::time_point when{(requested.time_since_epoch() / kGrain + 1) * kGrain};
  {
    MutexLock lock(mutex_);
    if (!planned_.insert(when).second) return;
  }
  PostAt(when);
}

void Sweeper::Retry() {
  Clock::time_point when;
  {
    MutexLock lock(mutex_);
    when = Clock::now() + retry_;
    if (retry_at_ && *retry_at_ <= when) return;
    retry_ = std::min(retry_ * 2, kRetryMax);
    retry_at_ = when;
  }
  PostAt(when);
}

void Sweeper::PostAt(Clock::time_point when) {
  worker_.PostAt(when, [this, when] {
    {
      MutexLock lock(mutex_);
      planned_.erase(when);
      if (retry_at_ == when) retry_at_.reset();
    }
    Sweep();
  });
}

// A cooperative client reports that it has cleared such a slot; the periodic check is for other clients.
void Sweeper::WatchHazards() {
  if (broker_.hazards_waiting()) LookAfter(kLookMin);
}

void Sweeper::HazardCleared(SessionId session) {
  if (broker_.HazardCleared(session)) LookOn();
}

void Sweeper::LookOn() {
  if (looks_on_.exchange(true)) return;
  worker_.PostAt(Clock::now() + kSlicePause, [this] {
    looks_on_.store(false);
    if (poll_hazards_(Look::kOn)) LookOn();
  });
}

// Plans a check, unless an earlier one is planned.
void Sweeper::LookAfter(std::chrono::milliseconds pause) {
  const Clock::time_point when = Clock::now() + pause;
  {
    MutexLock lock(mutex_);
    if (look_at_ && *look_at_ <= when) return;
    look_at_ = when;
  }
  worker_.PostAt(when, [this, when, pause] {
    {
      MutexLock lock(mutex_);
      if (look_at_ != when) return;  // an earlier check has replaced this one
      look_at_.reset();
    }
    if (poll_hazards_(Look::kAll)) LookOn();
    if (broker_.hazards_waiting()) LookAfter(std::clamp(pause * 2, kLookMin, kLookMax));
  });
}

void Sweeper::Sweep() {
  SweepNow();
  swept_();
}

Broker::Swept Sweeper::SweepNow() {
  posted_.store(false);  // cleared first, so that a later release requests another sweep
  const Broker::Swept swept = broker_.Sweep(Clock::now());
  if (swept.more_later) Retry();
  Plan(swept);
  return swept;
}

void Sweeper::Plan(const Broker::Swept& swept) {
  if (swept.next) At(*swept.next);
  WatchHazards();  // a share without a lease or name may still be held
  heap_.Freed();
  if (!swept.unfinished || sweeps_on_.exchange(true)) return;
  worker_.PostAt(Clock::now() + kSlicePause, [this] {
    sweeps_on_.store(false);
    SweepOn();
  });
}

// A sweep of what a slice releases follows after the last slice, unless another caller requests one earlier.
void Sweeper::SweepOn() {
  const Broker::Swept swept = broker_.SweepOn(Clock::now());
  Plan(swept);
  if (!swept.unfinished && broker_.sweep_wanted()) Soon();
}

}  // namespace arraybridge::daemon
