#include "daemon/service/sweeper.h"

#include <algorithm>
#include <utility>

namespace arraybridge {

Sweeper::Sweeper(Broker& broker, Worker& worker, std::function<void()> swept)
    : broker_(broker), worker_(worker), swept_(std::move(swept)) {}

void Sweeper::Soon() {
  {
    MutexLock lock(mutex_);
    retry_ = kGrain;
  }
  if (posted_.exchange(true)) return;
  worker_.Post([this] { Sweep(); });
}

void Sweeper::After(std::chrono::milliseconds delay) {
  const auto since = Clock::now().time_since_epoch() + delay;
  const Clock::time_point when{(since / kGrain + 1) * kGrain};
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

void Sweeper::Sweep() {
  SweepNow();
  swept_();
}

Broker::Swept Sweeper::SweepNow() {
  posted_.store(false);  // before: what is let go from here on asks for the next sweep
  const Broker::Swept swept = broker_.Sweep(Clock::now());
  if (swept.more_later) Retry();
  return swept;
}

}  // namespace arraybridge
