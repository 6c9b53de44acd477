// SPDX-License-Identifier: Apache-2.0
// The Sweeper decides when the broker reclaims memory: soon after a release, repeatedly while processes still hold
// memory that has no owner, and at the end of a grace period. All reasons lead to the same sweep.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>

#include "daemon/broker/broker.h"
#include "daemon/service/reclaim/heap_trimmer.h"
#include "daemon/service/reclaim/worker.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// Thread-safe.
class Sweeper {
 public:
  // kAll: checks all shares that wait for hazard slots. kOn: continues the current check.
  enum class Look { kAll, kOn };
  // `swept` runs on the worker after each sweep. `poll_hazards` runs there while shares wait for hazard slots; it
  // returns true if there is more to check. The worker must have stopped before the sweeper is destroyed.
  Sweeper(Broker& broker, Worker& worker, HeapTrimmer& heap, std::function<void()> swept,
          std::function<bool(Look)> poll_hazards);

  // Sweeps on the worker as soon as it is free.
  void Soon();
  // Sweeps again after `delay`, within kGrain.
  void After(std::chrono::milliseconds delay);
  // Sweeps again at that time, within kGrain.
  void At(Clock::time_point when) AB_EXCLUDES(mutex_);
  // Call it when a share may have begun to wait for a hazard slot: checks with growing pauses until no share waits.
  void WatchHazards() AB_EXCLUDES(mutex_);
  // The session reports that it has cleared a hazard slot: soon checks the shares that it reads.
  void HazardCleared(SessionId session) AB_EXCLUDES(mutex_);
  // Sweeps at once, on the calling thread, without calling `swept`. O(bytes): call it on a worker. The result does not
  // include what another thread sweeps meanwhile.
  Broker::Swept SweepNow() AB_EXCLUDES(mutex_);

 private:
  static constexpr std::chrono::milliseconds kGrain{50};
  static constexpr std::chrono::milliseconds kRetryMax{1000};
  static constexpr std::chrono::milliseconds kLookMin{10};
  static constexpr std::chrono::milliseconds kLookMax{1000};
  // The pause between two slices of work, which leaves most of the time to other threads.
  static constexpr std::chrono::microseconds kSlicePause{300};

  void Sweep() AB_EXCLUDES(mutex_);
  void SweepOn() AB_EXCLUDES(mutex_);
  void Plan(const Broker::Swept& swept) AB_EXCLUDES(mutex_);
  // Sweeps again after the back-off; at most one such sweep is planned.
  void Retry() AB_EXCLUDES(mutex_);
  void PostAt(Clock::time_point when) AB_EXCLUDES(mutex_);
  void LookAfter(std::chrono::milliseconds pause) AB_EXCLUDES(mutex_);
  void LookOn() AB_EXCLUDES(mutex_);

  Broker& broker_;
  Worker& worker_;
  HeapTrimmer& heap_;
  const std::function<void()> swept_;
  const std::function<bool(Look)> poll_hazards_;
  std::atomic<bool> posted_{false};
  std::atomic<bool> sweeps_on_{false};  // the next slice of a sweep is planned
  std::atomic<bool> looks_on_{false};   // the next slice of a check is planned
  Mutex mutex_;
  std::chrono::milliseconds retry_ AB_GUARDED_BY(mutex_) = kGrain;
  std::optional<Clock::time_point> retry_at_ AB_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> look_at_ AB_GUARDED_BY(mutex_);  // time of the next check of hazard pages
  std::set<Clock::time_point> planned_ AB_GUARDED_BY(mutex_);       // multiples of kGrain, so their number is bounded
};

}  // namespace arraybridge::daemon
