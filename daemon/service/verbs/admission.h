// SPDX-License-Identifier: Apache-2.0
// Admission decides whether a request is served while the broker drains, and how long it may wait.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/verbs/caller.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class Admission {
 public:
  // Both arguments outlive it.
  Admission(const Config& config, const Broker& broker) : config_(config), broker_(broker) {}

  void Drain() { draining_.store(true); }
  bool draining() const { return draining_.load(std::memory_order_relaxed); }
  // UNAVAILABLE, DRAINING.
  Status CheckNotDraining() const {
    if (!draining()) return Ok();
    return Unavailable("the broker is draining").Because("DRAINING");
  }

  // Makes the Waiter of a request that may wait. `bytes`: the memory of the request while it waits.
  Result<Waiter> WaiterOf(const Caller& caller, uint64_t bytes) const {
    AB_ASSIGN_OR_RETURN(const auto uid, broker_.UidOf(caller.session));
    Waiter waiter;
    waiter.session = caller.session;
    waiter.uid = uid;
    waiter.bytes = bytes;
    return waiter;
  }
  Clock::time_point DeadlineOf(uint64_t timeout_ms) const {
    return Clock::now() + std::chrono::milliseconds(Allowed(timeout_ms));
  }
  // How the answer to a request begins whose deadline has passed: "timed out after 10 s: ".
  std::string TimedOut(uint64_t timeout_ms) const {
    const uint64_t waited = Allowed(timeout_ms);
    if (waited < 1000) return Concat("timed out after ", waited, " ms: ");
    const uint64_t tenths = (waited + 50) / 100;
    const std::string fraction = tenths % 10 == 0 ? "" : Concat(".", tenths % 10);
    return Concat("timed out after ", tenths / 10, fraction, " s: ");
  }

 private:
  uint64_t Allowed(uint64_t timeout_ms) const {
    return std::min(timeout_ms, static_cast<uint64_t>(config_.limits.request_timeout_max.get().count()));
  }

  const Config& config_;
  const Broker& broker_;
  std::atomic<bool> draining_{false};
};

}  // namespace arraybridge::daemon
