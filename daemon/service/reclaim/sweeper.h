// The Sweeper decides when the broker reclaims: soon after something was let go, again and again while somebody still
// holds what is nobody's, and when a grace ends. Many reasons, one sweep.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>

#include "daemon/broker/broker.h"
#include "daemon/service/reclaim/heap_trimmer.h"
#include "daemon/service/reclaim/worker.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Sweeper {
 public:
  // How much is looked at: everything that waits for holds to end, or what is left of that.
  enum class Look { kAll, kOn };
  // `swept` runs on the worker after each sweep. `look_at_holds` too, while shares wait for holds to end; true: there
  // is more to look at. The worker must have ended before the sweeper dies.
  Sweeper(Broker& broker, Worker& worker, HeapTrimmer& heap, std::function<void()> swept,
          std::function<bool(Look)> look_at_holds);

  // On the worker, as soon as it is free.
  void Soon();
  // Once more when `delay` has passed, within kGrain.
  void After(std::chrono::milliseconds delay);
  // Once more at that time, within kGrain.
  void At(Clock::time_point when) AB_EXCLUDES(mutex_);
  // Something may have begun to wait for a hold: looks every so often, ever more seldom, until nothing does.
  void WatchHolds() AB_EXCLUDES(mutex_);
  // The session says that a hold of its own ended: looks soon, at what it reads of.
  void HoldEnded(SessionId session) AB_EXCLUDES(mutex_);
  // Here and now, without `swept`. O(bytes): on a worker. What another thread sweeps meanwhile is not counted.
  Broker::Swept SweepNow() AB_EXCLUDES(mutex_);

 private:
  static constexpr std::chrono::milliseconds kGrain{50};
  static constexpr std::chrono::milliseconds kRetryMax{1000};
  static constexpr std::chrono::milliseconds kLookMin{10};
  static constexpr std::chrono::milliseconds kLookMax{1000};
  // Between two slices of what is done in slices, so that most of the time is others'.
  static constexpr std::chrono::microseconds kSlicePause{300};

  void Sweep() AB_EXCLUDES(mutex_);
  void SweepOn() AB_EXCLUDES(mutex_);
  void Plan(const Broker::Swept& swept) AB_EXCLUDES(mutex_);
  // Once more when the back-off has passed; at most one sweep is planned for that.
  void Retry() AB_EXCLUDES(mutex_);
  void PostAt(Clock::time_point when) AB_EXCLUDES(mutex_);
  void LookAfter(std::chrono::milliseconds pause) AB_EXCLUDES(mutex_);
  void LookOn() AB_EXCLUDES(mutex_);

  Broker& broker_;
  Worker& worker_;
  HeapTrimmer& heap_;
  const std::function<void()> swept_;
  const std::function<bool(Look)> look_at_holds_;
  std::atomic<bool> posted_{false};
  std::atomic<bool> sweeps_on_{false};  // the next slice is planned
  std::atomic<bool> looks_on_{false};   // too
  Mutex mutex_;
  std::chrono::milliseconds retry_ AB_GUARDED_BY(mutex_) = kGrain;
  std::optional<Clock::time_point> retry_at_ AB_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> look_at_ AB_GUARDED_BY(mutex_);  // the next look at holds
  std::set<Clock::time_point> planned_ AB_GUARDED_BY(mutex_);       // on a grid of kGrain, so their number is bounded
};

}  // namespace arraybridge
