// The Watchdog tells the service manager that the daemon works for as long as it does: each round asks every loop that
// clients depend on, and only when all have answered is the manager told. A loop that is stuck ends the telling, and
// the manager ends the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "proto/boundary/mutex.h"

namespace arraybridge {

class Watchdog {
 public:
  // Hands the task to a loop, which runs it between its other work. Must not block.
  using Loop = std::function<void(std::function<void()> task)>;

  // How long the manager waits for a word; nothing: it does not watch us ($WATCHDOG_USEC, $WATCHDOG_PID).
  static std::optional<std::chrono::microseconds> Wanted();

  // Four rounds within `patience`, so that one late answer does not end the daemon. `tell` runs on a thread of the
  // Watchdog's own. REQUIRES: the loops outlive it, and run or drop what they were given before they die.
  Watchdog(std::chrono::microseconds patience, std::vector<Loop> loops, std::function<void()> tell);
  // Does not wait for a loop.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Round;  // outlives the Watchdog in the hands of a loop that answers late

  void Run();

  const std::chrono::microseconds period_;
  const std::vector<Loop> loops_;
  const std::function<void()> tell_;
  const std::shared_ptr<Round> round_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace arraybridge
