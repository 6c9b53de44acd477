// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/ended_sessions.h"

#include <algorithm>
#include <utility>

namespace arraybridge::daemon {

void EndedSessions::Add(std::unique_ptr<Session> session) {
  uint64_t steps = kStepsAtOnce;
  arenas_.because = FreeCause::kSessionEnd;
  const bool cleared = Clear(*session, &steps);
  arenas_.because = FreeCause::kRelease;
  if (cleared) return released_.Add(std::move(session));
  all_.push_back(std::move(session));
  flags_.sweep_wanted.store(true);
}

// Clears a few steps of each session in turn, so that a small session does not wait for a large one.
void EndedSessions::Clear(uint64_t* steps) {
  constexpr uint64_t kTurn = kStepsAtOnce / 4;
  arenas_.because = FreeCause::kSessionEnd;
  while (!all_.empty() && *steps > 0) {
    const uint64_t given = std::min(kTurn, *steps);
    uint64_t left = given;
    std::unique_ptr<Session> session = std::move(all_.front());
    all_.pop_front();
    const bool cleared = Clear(*session, &left);
    *steps -= std::max<uint64_t>(given - left, 1);
    if (cleared) {
      released_.Add(std::move(session));
    } else {
      all_.push_back(std::move(session));
    }
  }
  arenas_.because = FreeCause::kRelease;
}

// Clears fences first. An event dies with its process, and no client is left to report it. The bytes of such a share
// are not given to another session: its arena gets no writer any more, and dies only after the process, which may still
// write it, is dead. Fences precede the session's own leases and hazard slots, which may be the last ones of the share.
bool EndedSessions::Clear(Session& session, uint64_t* steps) {
  while (!session.fenced.empty()) {
    if (!TakeStep(steps)) return false;
    Share& share = *session.fenced.extract(session.fenced.begin()).mapped();
    share.fenced_by = nullptr;
    if (!share.fence.done()) leases_.LoseFence(share);
  }
  if (!session.hazard_pages_in.empty()) {
    hazards_.DropPages(session);
    // Many sessions may end at once: their shares are looked for in one round, unless a look costs little.
    shares_.LookFor(kLookTurnNs);
  }
  while (!session.leases.empty()) {
    if (!TakeStep(steps)) return false;
    leases_.End(session, session.leases.begin()->first);
  }
  while (!session.uses.empty()) {
    if (!TakeStep(steps)) return false;
    const auto use = session.uses.begin();
    use->first->readers.erase(&session);
    session.uses.erase(use);
  }
  while (!session.forwarded.empty()) {
    if (!TakeStep(steps)) return false;
    Share& share = *session.forwarded.extract(session.forwarded.begin()).mapped();
    share.forwarded_by = nullptr;
    shares_.LeaveBehind(share, session);
  }
  return ClearArenas(session, steps);
}

// An arena may begin to die during this loop; the session does not have it any more then.
bool EndedSessions::ClearArenas(Session& session, uint64_t* steps) {
  while (!session.arenas.empty()) {
    if (!TakeStep(steps)) return false;
    const auto first = session.arenas.begin();
    Arena& arena = *first->second;
    if (session.clearing.arena != first->first) {
      session.clearing = {first->first, 0, 0};
      if (arena.writer != nullptr) arenas_.GiveBack(arena);
      continue;
    }
    const auto next = arena.shares().lower_bound(session.clearing.offset);
    if (next == arena.shares().end()) {
      arena.maker = nullptr;
      arena.ns()->unowned_bytes += arena.footprint();
      session.arenas.erase(first);
      continue;
    }
    session.clearing.offset = next->first + 1;
    shares_.LeaveBehind(*next->second, session);
  }
  return true;
}

}  // namespace arraybridge::daemon
