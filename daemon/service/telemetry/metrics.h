// Metrics are the daemon's numbers in Prometheus' text format (version 0.0.4): one line here for each number that the
// broker and the doors keep. Labels are bounded: no share, session, process or path is one.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge {

// Thread-safe.
class Metrics {
 public:
  // What runs, for who compares hosts.
  struct Build {
    std::string revision;
    std::string driver;  // the CUDA version that the GPUs' driver supports, or "none"
  };
  // What they tell of outlives them.
  Metrics(const Config& config, const Broker& broker, const Verbs& verbs, Build build)
      : config_(config), broker_(broker), verbs_(verbs), build_(std::move(build)) {}

  // The configuration was read again, or what was to be read was refused.
  void CountReload(bool ok);
  // The service manager was told that the daemon works.
  void CountWatchdogPing();
  // The whole page. Takes the broker's lock for as long as counting namespaces and devices takes.
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
  std::atomic<Clock::rep> last_ping_{0};  // since the clock's epoch; 0: there was none
  std::atomic<Clock::rep> longest_gap_{0};
  std::atomic<double> last_reload_{NowSeconds()};  // seconds since 1970; the start counts
};

}  // namespace arraybridge
