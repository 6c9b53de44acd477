// SPDX-License-Identifier: Apache-2.0
// EndedSessions holds sessions that have ended and still have leases, hazard slots or arenas. No verb finds them. They
// are cleared in slices, and the lock is free between two slices, so that other sessions do not wait.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "daemon/broker/ledger/deferred_release.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/tables/arenas.h"
#include "daemon/broker/tables/hazards.h"
#include "daemon/broker/tables/leases.h"
#include "daemon/broker/tables/shares.h"

namespace arraybridge::daemon {

// The number of shares, leases or channel ends that are dropped before the lock is released.
inline constexpr uint64_t kStepsAtOnce = 64;

// Not thread-safe: the broker's lock guards it.
class EndedSessions {
 public:
  // All arguments outlive the table. Cleared sessions go to `released`.
  EndedSessions(Arenas& arenas, Hazards& hazards, Shares& shares, Leases& leases, Flags& flags,
                DeferredRelease& released)
      : arenas_(arenas), hazards_(hazards), shares_(shares), leases_(leases), flags_(flags), released_(released) {}

  // Clears the session, or its first slice.
  void Add(std::unique_ptr<Session> session);
  // The session is not cleared, because its client lives and the process ends.
  void AddUncleared(std::unique_ptr<Session> session) { all_.push_back(std::move(session)); }
  // Clears all sessions in turn. Subtracts its steps from `steps`.
  void Clear(uint64_t* steps);

 private:
  // Each call subtracts its steps from `steps`. True: the session is cleared.
  bool Clear(Session& session, uint64_t* steps);
  bool ClearArenas(Session& session, uint64_t* steps);

  Arenas& arenas_;
  Hazards& hazards_;
  Shares& shares_;
  Leases& leases_;
  Flags& flags_;
  DeferredRelease& released_;
  std::deque<std::unique_ptr<Session>> all_;
};

}  // namespace arraybridge::daemon
