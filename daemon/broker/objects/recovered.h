// SPDX-License-Identifier: Apache-2.0
// Recovered is the state that a daemon takes over from the one before it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/peer.h"

namespace arraybridge::daemon {

struct DirectChannelRecord;

// A session whose client still has its connection.
struct LiveClient {
  SessionId session{};
  Peer peer;  // as the kernel describes it; the journal has the rest
};

struct Recovered {
  uint64_t life = 1;         // the daemons that have used this store, with this one
  int64_t began_unix_s = 0;  // the start of the first of them
  uint64_t shares = 0;
  uint64_t bytes = 0;  // of the arenas
  uint64_t lost_shares = 0;
  uint64_t lost_shares_total = 0;  // of all lives
  uint64_t damaged_records = 0;
  struct Lost {
    std::string ns;       // empty: not known
    uint32_t ns_uid = 0;  // the owner; kSharedByUsers
    std::string share;
    std::string why;
  };
  std::vector<Lost> lost;           // the first ones
  std::vector<SessionId> sessions;  // the caller serves them again
  // Sessions over gRPC: the caller ends those that are not continued in time (Broker::ContinueSession, StopAwaiting).
  std::vector<SessionId> awaited;
  uint64_t session_count() const { return sessions.size() + awaited.size(); }
  // Before it serves any: the caller ends the first direct channels, then these sessions, whose clients are gone and
  // which have ends of channels.
  std::vector<std::shared_ptr<const DirectChannelRecord>> revoking;
  std::vector<SessionId> gone;
};

}  // namespace arraybridge::daemon
