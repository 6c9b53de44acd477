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
  worker_.PostAt(when, [this, when] {
    {
      MutexLock lock(mutex_);
      planned_.erase(when);
    }
    Sweep();
  });
}

void Sweeper::Sweep() {
  posted_.store(false);  // before: what is let go from here on asks for the next sweep
  const Broker::Swept swept = broker_.Sweep(Clock::now());
  if (swept.more_later) {
    std::chrono::milliseconds delay;
    {
      MutexLock lock(mutex_);
      delay = retry_;
      retry_ = std::min(retry_ * 2, kRetryMax);
    }
    After(delay);
  }
  swept_();
}

}  // namespace arraybridge
