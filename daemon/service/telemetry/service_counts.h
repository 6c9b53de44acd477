// SPDX-License-Identifier: Apache-2.0
// ServiceCounts are the counts of doors and verbs: traffic, refusals, cut sessions. `log` tells operators of clients.
#pragma once

#include <atomic>
#include <cstdint>

#include "daemon/broker/broker.h"
#include "daemon/service/telemetry/client_log.h"
#include "daemon/service/telemetry/tallies.h"
#include "daemon/service/telemetry/traffic.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class ServiceCounts {
 public:
  explicit ServiceCounts(Broker& broker) : log(broker), broker_(broker) {}  // which outlives it

  // A door has answered with an error. Watchers see it as an event. The end of a wait, which a poll is too, is no
  // refusal.
  void CountRefusal(SessionId session, Verb verb, const Status& refusal) {
    if (refusal.code() == Code::kDeadlineExceeded) return;
    CountRefusal();
    tallies.CountRefusal(verb, refusal);
    if (refusal.reason().starts_with("QUOTA")) log.QuotaRefused(session, refusal);
    broker_.EmitRefusal(session, NameOf(verb), refusal);
  }
  void CountRefusal(const Peer& peer, Verb verb, const Status& refusal) {
    if (refusal.code() == Code::kDeadlineExceeded) return;
    CountRefusal();
    tallies.CountRefusal(verb, refusal);
    broker_.EmitRefusal(peer, NameOf(verb), refusal);
  }
  void CountRefusal() { refusals_.fetch_add(1, std::memory_order_relaxed); }
  void CountCut() { cuts_.fetch_add(1, std::memory_order_relaxed); }

  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  uint64_t cuts() const { return cuts_.load(std::memory_order_relaxed); }

  Traffic traffic;
  Tallies tallies;
  ClientLog log;

 private:
  Broker& broker_;
  std::atomic<uint64_t> refusals_{0};
  std::atomic<uint64_t> cuts_{0};
};

}  // namespace arraybridge::daemon
