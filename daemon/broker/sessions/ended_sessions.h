// EndedSessions are sessions that have ended and whose leases, holds and arenas are not all given up yet: no verb finds
// them. They are cleared in slices, with the lock free in between, so that other sessions do not wait for that.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "daemon/broker/arenas/arenas.h"
#include "daemon/broker/deferred_release.h"
#include "daemon/broker/flags.h"
#include "daemon/broker/sessions/session.h"
#include "daemon/broker/shares/hazards.h"
#include "daemon/broker/shares/leases.h"
#include "daemon/broker/shares/shares.h"

namespace arraybridge {

// How many shares, leases or ends of channels are dropped with the lock held once; the others after it was free.
inline constexpr uint64_t kStepsAtOnce = 64;

// Not thread-safe: the broker's lock guards it.
class EndedSessions {
 public:
  // All outlive it. Sessions that are cleared go to `released`.
  EndedSessions(Arenas& arenas, Hazards& hazards, Shares& shares, Leases& leases, Flags& flags,
                DeferredRelease& released)
      : arenas_(arenas), hazards_(hazards), shares_(shares), leases_(leases), flags_(flags), released_(released) {}

  // Clears it, or as much of it as may be at once.
  void Add(std::unique_ptr<Session> session);
  // All of them in turn. Takes its steps off `steps`.
  void Clear(uint64_t* steps);

 private:
  // Each takes its steps off `steps`. True: nothing is left of the session.
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

}  // namespace arraybridge
