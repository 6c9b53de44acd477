// SPDX-License-Identifier: Apache-2.0
// ClientLog writes what an operator looks for after a failure: a process that died, an allocation that a quota refused,
// and a channel on which a process waits. Clients can cause them, so each kind has a limit (log.rate_limit_per_s).
#pragma once

#include <array>
#include <optional>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/service/telemetry/log_throttle.h"
#include "daemon/service/telemetry/log_topic.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class ClientLog {
 public:
  explicit ClientLog(const Broker& broker) : broker_(broker) {}  // which outlives it

  // The process of this session was killed by a signal.
  void SessionDied(SessionId session, const Peer& peer, int signal);
  void QuotaRefused(SessionId session, const Status& refusal);
  // A request of this end has waited for `seconds`.
  void ChannelAwaited(SessionId session, ChannelEndId end, uint64_t seconds);

 private:
  enum Kind : uint8_t { kDied, kQuota, kAwaited, kKinds };
  // The number of lines of this kind that were left out before this one; nullopt: this one is left out, too.
  std::optional<uint64_t> Admit(Kind kind) AB_EXCLUDES(mutex_);

  const Broker& broker_;
  Mutex mutex_;
  std::array<LogThrottle, kKinds> throttles_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge::daemon
