// SPDX-License-Identifier: Apache-2.0
// The Reclaimer gives memory back after something was released. It sweeps the broker, looks at hazard slots, trims the
// heap, and serves the requests that wait for memory. It owns the threads for slow work.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "daemon/broker/broker.h"
#include "daemon/service/reclaim/heap_trimmer.h"
#include "daemon/service/reclaim/session_cuts.h"
#include "daemon/service/reclaim/sweeper.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/reclaim/worker.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe. One thread for tasks that may destroy memory or populate a little, and one for tasks that populate much.
class Reclaimer {
 public:
  // All arguments outlive it.
  Reclaimer(Broker& broker, WaitingLine& line, SessionCuts& cuts);
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // Call it after something was released: sweeps soon, unless a sweep would find nothing and no request waits for
  // memory.
  void Reclaim();
  // Finds the sessions that still hold withdrawn bytes, and ends those that hold too many. True: there is more to look
  // at.
  bool PollHazards(Sweeper::Look look);
  Sweeper& sweeper() { return sweeper_; }
  HeapTrimmer& heap() { return heap_; }

  // Gives cached memory and arenas without a name back to the system; calls `done` with the number of bytes, on another
  // thread. `only`: only cached memory of this device; NOT_FOUND: the broker does not serve it.
  void Trim(std::optional<Device> only, std::function<void(Result<uint64_t> freed_bytes)> done);

  // Soon tries the requests that wait for memory in this lane. Calls before the task begins count as one.
  void ServeMemorySoon(Lane lane);
  // The same after a pause: other programs may free memory too, without telling the broker.
  void ServeMemoryLater(Lane lane);

  // Runs the task on the thread for slow work.
  void Post(Worker::Task task) { slow_.Post(std::move(task)); }
  void PostAt(Clock::time_point when, Worker::Task task) { slow_.PostAt(when, std::move(task)); }
  // Waits until both threads have run their tasks, or until the deadline.
  void WaitIdle(Clock::time_point deadline);
  // StopLarge ends the thread that populates much; call StopSlow after it. Not thread-safe.
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

}  // namespace arraybridge::daemon
