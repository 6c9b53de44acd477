// SPDX-License-Identifier: Apache-2.0
// A Scene is one running experiment: it starts peers, collects expectations and observations, and prints one line of
// outcome at the end, or when the watchdog ends it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/experiments/peer.h"

namespace arraybridge::experiments {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

class Scene {
 public:
  struct Options {
    std::string name;   // E3
    std::string title;  // the descriptor alone
    std::string driver;
    bool small = false;            // a machine of any speed, with little memory: no watchdog
    std::chrono::seconds limit{};  // the watchdog
  };
  explicit Scene(Options options);

  // Without a driver.
  std::unique_ptr<Peer> StartBare(const std::string& name, std::vector<std::string> under = {},
                                  std::vector<std::string> environment = {});
  // The same, for an experiment that loads the driver itself.
  std::unique_ptr<Peer> StartUnloaded(const std::string& name, std::vector<std::string> environment = {});
  // The driver loaded and initialised; with `context`, the first device's primary context is current.
  std::unique_ptr<Peer> Start(const std::string& name, bool context = true, std::vector<std::string> under = {},
                              std::vector<std::string> environment = {});

  void Expect(const std::string& what, bool held);
  // Expects that a command succeeds; records its answer if not.
  bool Needs(const std::string& what, const Answer& answer);
  void Record(const std::string& what, const std::string& seen);
  void CannotRun(const std::string& why) { impossible_ = why; }

  // `bytes`, or at most 4 MiB on a small machine.
  uint64_t Bytes(uint64_t bytes) const { return options_.small && bytes > 4 * kMiB ? 4 * kMiB : bytes; }
  bool small() const { return options_.small; }
  // Counts a time that a command or a wait takes in addition to its calls; a tenth of it on a small machine.
  std::chrono::milliseconds Takes(std::chrono::milliseconds time);
  void Wait(std::chrono::milliseconds time);
  // The answer to a command that may never return, and is given up after this time; on a small machine, never.
  Answer Within(Peer& peer, const std::string& command, std::chrono::milliseconds time);

  // One JSON line: {experiment, title, outcome, checks, seen, seconds, waits_s, drivers}. The last two: all that was
  // counted by Takes, as if on a large machine, and how many peers loaded the driver.
  void Print(const std::string& late = {}) const;

 private:
  const Options options_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, bool>> checks_;
  std::vector<std::pair<std::string, std::string>> seen_;
  std::string impossible_;
  std::chrono::milliseconds waits_{};
  int drivers_ = 0;
};

}  // namespace arraybridge::experiments
