// The Sweeper decides when the broker reclaims: soon after something was let go, again and again while somebody still
// holds what is nobody's, and when a grace ends. Many reasons, one sweep.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>

#include "daemon/broker/broker.h"
#include "daemon/service/worker.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Sweeper {
 public:
  // `swept` runs on the worker after each sweep. The worker must have ended before the sweeper dies.
  Sweeper(Broker& broker, Worker& worker, std::function<void()> swept);

  // On the worker, as soon as it is free.
  void Soon();
  // Once more when `delay` has passed, within kGrain.
  void After(std::chrono::milliseconds delay);
  // Here and now, without `swept`. O(bytes): on a worker. What another thread sweeps meanwhile is not counted.
  Broker::Swept SweepNow() AB_EXCLUDES(mutex_);

 private:
  static constexpr std::chrono::milliseconds kGrain{50};
  static constexpr std::chrono::milliseconds kRetryMax{1000};

  void Sweep() AB_EXCLUDES(mutex_);
  // Once more when the back-off has passed; at most one sweep is planned for that.
  void Retry() AB_EXCLUDES(mutex_);
  void PostAt(Clock::time_point when) AB_EXCLUDES(mutex_);

  Broker& broker_;
  Worker& worker_;
  const std::function<void()> swept_;
  std::atomic<bool> posted_{false};
  Mutex mutex_;
  std::chrono::milliseconds retry_ AB_GUARDED_BY(mutex_) = kGrain;
  std::optional<Clock::time_point> retry_at_ AB_GUARDED_BY(mutex_);
  std::set<Clock::time_point> planned_ AB_GUARDED_BY(mutex_);  // on a grid of kGrain, so their number is bounded
};

}  // namespace arraybridge
