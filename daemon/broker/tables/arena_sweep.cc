// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/arena_sweep.h"

#include <algorithm>

#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {

ArenaSweep::ArenaSweep(Arenas& arenas, Clock::time_point now)
    : taken_(arenas.TakeForSweep(now)), dying_(taken_.dying.size()) {}

// A refused seal may have slept first because pages were pinned. A sweep tries no more seals after one.
void ArenaSweep::Seal() {
  for (const auto& [id, block] : taken_.unsealed) {
    seals_.emplace_back(id, block->Seal());
    if (seals_.back().second.ok() && *seals_.back().second != Immutability::kEnforced) break;
  }
  taken_.unsealed.clear();
}

// A block that a verb is exporting right now counts as mapped. No other verb can reach it after that.
bool ArenaSweep::IsMapped(const Arena& arena) const {
  const auto held = taken_.holders.find(arena.id());
  const bool mapped = held != taken_.holders.end() && !held->second.empty() && !Failpoint("quarantine");
  return mapped || arena.block().use_count() > 1 || arena.block()->HeldElsewhere();
}

uint64_t ArenaSweep::Run() {
  Seal();
  for (auto& [arena, held] : taken_.holders) held.DropDead();
  auto& dying = taken_.dying;
  const auto dead = std::partition(dying.begin(), dying.end(), [&](const auto& arena) { return IsMapped(*arena); });
  uint64_t bytes = 0;
  for (auto at = dead; at != dying.end(); ++at) {
    const Arena& arena = **at;
    bytes += arena.footprint();
    freed_.push_back({arena.id(), arena.device(), arena.kind(), arena.footprint(), arena.freed_by, arena.record});
  }
  dying.erase(dead, dying.end());
  return bytes;
}

void ArenaSweep::Finish(Arenas& arenas, Clock::time_point now) {
  for (const Freed& one : freed_) {
    arenas.Freed(one.arena, one.record);
    arenas.flows.Went(one.device, one.kind, one.bytes, one.by);
  }
  arenas.PutBack(dying_, std::move(taken_.dying));
  for (const auto& [id, sealed] : seals_) arenas.NoteSeal(id, sealed, now);
}

}  // namespace arraybridge::daemon
