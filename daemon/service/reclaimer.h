// The Reclaimer gives memory back after something was let go: it sweeps the broker, looks at hazard slots, trims the
// heap, and serves the requests that wait for memory. It owns the threads for slow work.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "daemon/broker/broker.h"
#include "daemon/service/heap_trimmer.h"
#include "daemon/service/sweeper.h"
#include "daemon/service/verbs/session_cuts.h"
#include "daemon/service/waiting_line.h"
#include "daemon/service/worker.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. One thread for what may destroy or populate a little, and one for what populates much.
class Reclaimer {
 public:
  // All outlive it.
  Reclaimer(Broker& broker, WaitingLine& line, SessionCuts& cuts);
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // Something was let go: a sweep follows, unless it would find nothing and no request waits for memory.
  void Reclaim();
  // Looks which sessions still hold withdrawn bytes, and ends those that hold too many. True: there is more to look at.
  bool LookAtHolds(Sweeper::Look look);
  Sweeper& sweeper() { return sweeper_; }
  HeapTrimmer& heap() { return heap_; }

  // Gives cached memory and what has no name any more back to the system; tells how many bytes, on another thread.
  // `only`: what is cached of this device alone; NOT_FOUND: it is not served.
  void Trim(std::optional<Device> only, std::function<void(Result<uint64_t> freed_bytes)> done);

  // Requests that wait for memory in this lane are tried soon. Many calls are one task, which serves all that wait when
  // it begins.
  void ServeMemorySoon(Lane lane);
  // After a while: programs that are no clients of the broker give memory back, too, and do not say so.
  void ServeMemoryLater(Lane lane);

  // On the thread for what is slow.
  void Post(Worker::Task task) { slow_.Post(std::move(task)); }
  // Waits until both threads have done what was posted, or until the deadline.
  void WaitIdle(Clock::time_point deadline);
  // The thread for what populates much ends, then the other one. Not thread-safe.
  void StopLarge() { large_.Stop(); }
  void StopSlow() { slow_.Stop(); }

 private:
  void ServeMemory(Lane lane);
  Worker& WorkerOf(Lane lane) { return lane == Lane::kLong ? large_ : slow_; }

  Broker& broker_;
  WaitingLine& line_;
  SessionCuts& cuts_;
  std::array<std::atomic<bool>, 2> serve_posted_{};  // by lane
  std::array<std::atomic<bool>, 2> look_posted_{};   // by lane
  HeapTrimmer heap_{slow_};
  Sweeper sweeper_;
  Worker large_;
  Worker slow_;  // last: its tasks use all of the above
};

}  // namespace arraybridge
