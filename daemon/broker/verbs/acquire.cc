// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs that lease shares, release leases and withdraw names.
#include <utility>

#include "daemon/broker/tables/tiers/disk_arena.h"
#include "daemon/broker/verbs/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

// The missing share that the refusal names: an id, which never comes back, before a name, which may come.
const ShareKey& WorstMissing(const Namespace* ns, std::span<const ShareKey> keys) {
  const ShareKey* worst = nullptr;
  for (const ShareKey& key : keys) {
    if (FindShare(ns, key) != nullptr) continue;
    if (key.id != ShareId{}) return key;
    if (worst == nullptr) worst = &key;
  }
  return *worst;
}

Status AnswerTooLarge(uint64_t bytes, size_t shares, size_t of, uint64_t bytes_max) {
  return ResourceExhausted("the first ", shares, " of ", of, " shares have descriptions of ", bytes,
                           " bytes (an answer has at most ", bytes_max, "): ask for fewer shares at once")
      .Because("ANSWER_TOO_LARGE");
}

}  // namespace

Result<AcquiredShares> Broker::Acquire(SessionId session, std::string_view ns, std::span<const ShareKey> keys,
                                       bool with_descriptor, bool final_only, std::string_view note, uint64_t bytes_max,
                                       uint64_t request) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  AcquiredShares acquired;
  acquired.shares.reserve(keys.size());
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
    AB_ASSIGN_OR_RETURN(const auto place, state.rights.KeyOf(found->peer, ns, Right::kRead));
    AB_RETURN_IF_ERROR(state.leases.CheckRoom(*found, keys.size()));
    AB_RETURN_IF_ERROR(state.journal.CheckRoom(keys.size() * sizeof(record::Lease)));
    Namespace* const owner = state.namespaces.Find(place);
    std::vector<Share*> shares;
    shares.reserve(keys.size());
    uint64_t bytes = 0;
    uint64_t of_others = 0;
    // A writer may fill the namespace anyway.
    const bool may_pin = found->account->leased.empty() || state.rights.MayUse(found->peer, place, Right::kWrite);
    for (const ShareKey& key : keys) {
      shares.push_back(FindShare(owner, key));
      if (shares.back() == nullptr) return NoShare(ns, WorstMissing(owner, keys), limits);
      const ShareFacts& facts = *shares.back()->facts;
      bytes += facts.description.size() + facts.ns.size() + facts.name.size();
      if (bytes > bytes_max) return AnswerTooLarge(bytes, shares.size(), keys.size(), bytes_max);
      const Arena& arena = *shares.back()->arena;
      if (arena.is_on_disk()) return IsAway(*shares.back());
      if (!found->peer.MayOpen(arena.kind(), arena.device())) {
        return found->peer.CannotOpen(Concat("share '", shares.back()->facts->name, "'"), arena.kind(), arena.device());
      }
      AB_RETURN_IF_ERROR(state.leases.CheckFence(*found, *shares.back(), final_only));
      if (may_pin || shares.back()->maker_uid == found->peer.uid) continue;
      AB_RETURN_IF_ERROR(state.accounts.CheckPinned(*found, *shares.back(), of_others));
      of_others += shares.back()->size;
    }
    Arena* lacking = nullptr;
    for (Share* const share : shares) {
      state.hazards.Insert(*share);  // it may have been published before the catalogue existed
      acquired.shares.push_back(state.leases.Grant(*found, *share, request));
      state.shares.NoteRead(*share);
      Leases::PassFence(*found, *share, &acquired.shares.back());
      static_cast<void>(Failpoint("lease_recorded"));
      state.leases.NoteReader(*found, *share, note);
      state.events.Emit(EventKind::kAcquire, found, *share, note);
      if (lacking == nullptr && !share->arena->readers.contains(found)) lacking = share->arena;
    }
    state.shares.acquires_total += keys.size();
    if (!with_descriptor || lacking == nullptr) return acquired;
    state.arenas.AddReader(*found, *lacking);
    acquired.descriptor = lacking->Describe();
    block = lacking->block();
  }
  Status exported = state.ExportDescriptor(session, block, &acquired);
  if (exported.ok()) return acquired;
  const MutexLock lock(state.mutex);
  if (Session* const found = state.sessions.Find(session); found != nullptr) state.leases.Undo(*found, acquired.shares);
  return exported;
}

Status Broker::State::ExportDescriptor(SessionId session, const std::shared_ptr<MemoryBlock>& block,
                                       AcquiredShares* acquired) {
  auto exported = block->Export(Access::kRead);
  if (exported.ok()) {
    acquired->descriptor->descriptor = std::move(exported->descriptor);
    acquired->descriptor->opaque = std::move(exported->opaque);
    return Ok();
  }
  const MutexLock lock(mutex);
  Session* const found = sessions.Find(session);
  Arena* const arena = arenas.Find(ArenaId{acquired->descriptor->arena});
  if (found != nullptr && arena != nullptr) arenas.DropReader(*found, *arena);
  return exported.status();
}

Result<uint32_t> Broker::Withdraw(SessionId session, std::string_view ns, std::span<const ShareKey> keys) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto place, state.rights.KeyOf(found->peer, ns, Right::kWrite));
  return state.shares.Withdraw(state.namespaces.Find(place), place.name, keys, found);
}

Result<EndedFences> Broker::EndFences(SessionId session, std::span<const uint64_t> done,
                                      std::span<const uint64_t> lost) {
  State& state = *state_;
  EndedFences ended;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  for (const uint64_t share : done) state.leases.EndFence(*found, ShareId{share}, false, &ended);
  for (const uint64_t share : lost) state.leases.EndFence(*found, ShareId{share}, true, &ended);
  return ended;
}

std::vector<uint64_t> Broker::EndedMakers(SessionId session, std::span<const uint64_t> leases) {
  State& state = *state_;
  std::vector<uint64_t> ended;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  if (found == nullptr) return ended;
  for (const uint64_t lease : leases) {
    const auto held = found->leases.find(LeaseId{lease});
    const bool known = held != found->leases.end();
    if (known && state.sessions.Find(held->second->maker) == nullptr) ended.push_back(lease);
  }
  return ended;
}

Result<uint32_t> Broker::Release(SessionId session, std::span<const uint64_t> leases, std::span<const uint64_t> arenas,
                                 std::span<const uint64_t> unmapped) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  uint32_t released = 0;
  for (const uint64_t lease : leases) {
    state.events.EmitRelease(*found, LeaseId{lease});
    if (state.leases.End(*found, LeaseId{lease})) ++released;
  }
  for (const uint64_t id : unmapped) {
    Arena* const arena = state.arenas.Find(ArenaId{id});
    if (arena != nullptr && Arenas::WillMapAgain(*found, *arena)) continue;
    state.arenas.DropHolder(ArenaId{id}, session, Access::kRead);
    if (arena != nullptr) state.arenas.DropReader(*found, *arena);
  }
  for (const uint64_t id : arenas) {
    state.arenas.DropHolder(ArenaId{id}, session, Access::kWrite);
    if (Arena* const arena = state.arenas.FindWritable(*found, ArenaId{id}); arena != nullptr)
      state.arenas.GiveBack(*arena);
  }
  return released;
}

}  // namespace arraybridge::daemon
