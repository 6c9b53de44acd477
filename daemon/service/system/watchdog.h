// SPDX-License-Identifier: Apache-2.0
// The Watchdog tells the service manager that the daemon works: in each round it asks every loop that clients depend
// on, and notifies the manager only after all have answered. If a loop is stuck, the notifications stop, and the
// manager restarts the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

class Watchdog {
 public:
  // Passes a task to a loop, which runs it between its other work. Must not block.
  using Loop = std::function<void(std::function<void()> task)>;

  // The manager's timeout ($WATCHDOG_USEC, $WATCHDOG_PID); nullopt if it does not watch this process.
  static std::optional<std::chrono::microseconds> Wanted();

  // Runs four rounds within `patience`, so that one late answer does not end the daemon. `tell` runs on the Watchdog's
  // own thread. REQUIRES: the loops outlive this object, and run or drop their tasks before they are destroyed.
  Watchdog(std::chrono::microseconds patience, std::vector<Loop> loops, std::function<void()> tell);
  // Does not wait for a loop.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Round;  // a loop that answers late keeps it beyond the Watchdog's life

  void Run();

  const std::chrono::microseconds period_;
  const std::vector<Loop> loops_;
  const std::function<void()> tell_;
  const std::shared_ptr<Round> round_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace arraybridge::daemon
