// SPDX-License-Identifier: Apache-2.0
// The broker's sweep: ends what is due in slices, releases the lock between them, and frees dying arenas.
#include <algorithm>
#include <array>
#include <utility>

#include "daemon/broker/tables/arena_sweep.h"
#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

// Each table has its own steps, so that no table waits for another.
bool Broker::State::ClearSome(Clock::time_point now) {
  std::array<uint64_t, 5> left{};
  left.fill(kStepsAtOnce);
  ended_sessions.Clear(&left[0]);
  channels.ClearQueues(&left[1]);
  shares.WithdrawOrphans(now, &left[2]);
  shares.WithdrawExpired(now, &left[3]);
  channels.DropLingering(now, &left[4]);
  return std::ranges::find(left, uint64_t{0}) != left.end();
}

bool Broker::sweep_wanted() const { return state_->flags.sweep_wanted.load(); }

bool Broker::MayBeMappedElsewhere() const {
  std::unordered_map<ArenaId, Holders> holders;
  {
    const MutexLock lock(state_->mutex);
    holders = state_->arenas.holders();
  }
  return std::any_of(holders.begin(), holders.end(), [](auto& entry) {
    entry.second.DropDead();
    return !entry.second.empty();
  });
}

Broker::Swept Broker::Sweep(Clock::time_point now) {
  State& state = *state_;
  std::optional<ArenaSweep> arenas;
  Swept swept;
  {
    const MutexLock lock(state.mutex);
    if (state.stopping) return swept;  // what ended sessions held ends with the process
    swept.unfinished = state.ClearSome(now);
    state.hazards.WantLooks();  // an orphan may have no reader any more
    state.shares.LookFor(kLookNs);
    for (const auto& [id, session] : state.sessions.all()) state.sessions.DropLateTickets(*session, now);
    arenas.emplace(state.arenas, now);
    state.flags.sweep_wanted.store(false);  // the next sweep handles what is released from here on
  }
  swept.freed_bytes = arenas->Run();

  DeferredRelease::Objects released;                // destroyed after the lock
  std::vector<std::unique_ptr<Namespace>> dropped;  // likewise
  const MutexLock lock(state.mutex);
  arenas->Finish(state.arenas, now);
  state.namespaces.DropUnused();
  dropped = state.namespaces.TakeDropped();
  state.accounts.DropUnused();
  released = state.released.Take();
  swept.next = state.shares.NextDue();
  swept.more_later = state.arenas.has_unfinished() || state.shares.has_orphans() || state.channels.has_lingering();
  return swept;
}

Broker::Swept Broker::SweepOn(Clock::time_point now) {
  State& state = *state_;
  DeferredRelease::Objects released;  // destroyed after the lock
  Swept swept;
  const MutexLock lock(state.mutex);
  if (state.stopping) return swept;
  swept.unfinished = state.ClearSome(now);
  swept.next = state.shares.NextDue();
  released = state.released.Take();
  return swept;
}

}  // namespace arraybridge::daemon
