// SPDX-License-Identifier: Apache-2.0
// Metrics writes the daemon's numbers in Prometheus' text format (version 0.0.4): one line of code for each number of
// the broker and the doors. Labels are bounded: none is a share, session, process or path.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge::daemon {

// Thread-safe.
class Metrics {
 public:
  // The running version, for comparisons between hosts.
  struct Build {
    std::string revision;
    std::string driver;  // the CUDA version that the GPUs' driver supports, or "none"
  };
  // The arguments must outlive this object.
  Metrics(const Config& config, const Broker& broker, const Verbs& verbs, Build build)
      : config_(config), broker_(broker), verbs_(verbs), build_(std::move(build)) {}

  // Counts a reload of the configuration; `ok`: it was accepted.
  void CountReload(bool ok);
  // Counts a watchdog notification to the service manager.
  void CountWatchdogPing();
  // The whole page. Holds the broker's lock while it counts namespaces and devices.
  std::string Text() const;

 private:
  static double NowSeconds();

  const Config& config_;
  const Broker& broker_;
  const Verbs& verbs_;
  const Build build_;
  std::atomic<uint64_t> reloads_{0};
  std::atomic<uint64_t> reloads_refused_{0};
  std::atomic<uint64_t> watchdog_pings_{0};
  std::atomic<Clock::rep> last_ping_{0};  // since the clock's epoch; 0: none yet
  std::atomic<Clock::rep> longest_gap_{0};
  std::atomic<double> last_reload_{NowSeconds()};  // seconds since 1970; the start counts as a reload
};

}  // namespace arraybridge::daemon
