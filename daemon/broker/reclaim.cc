// How things end: leases, names, arenas, sessions. Bytes are given back in one order only: nobody names them
// (MayBeReused), then either their writer may carve them again, or the whole arena is dying; then nobody else has it
// open or mapped; then the block dies, and after it its Charge.
#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/broker/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge {
namespace {

constexpr std::chrono::milliseconds kEnforcePauseMax{60'000};
constexpr std::chrono::milliseconds kLifetimeMax = std::chrono::hours(24 * 365 * 100);  // what a clock can add

}  // namespace

bool Broker::State::EndLease(Session& session, LeaseId lease) {
  const auto found = session.leases.find(lease);
  if (found == session.leases.end()) return false;
  Share& share = *found->second;
  session.leases.erase(found);
  if (session.awaiting.erase(lease) > 0) --share.awaiting;
  const auto use = session.uses.find(share.arena);
  if (--use->second.leases == 0 && !use->second.given) session.uses.erase(use);
  --share.leases;
  --leases;
  if (share.orphan_until.has_value()) sweep_wanted.store(true);
  Settle(share);
  return true;
}

void Broker::State::TakeName(Share& share) {
  if (share.expires.has_value()) expiring.erase({*std::exchange(share.expires, std::nullopt), &share});
  share.ns->TakeName(share);
}

void Broker::State::Withdraw(Share& share, const Session* who, std::string_view why) {
  if (!share.withdrawn) {
    TellShare(EventKind::kWithdraw, who, share, why);
    ++withdrawals_total;
  }
  const FreeCause before = because;
  if (because == FreeCause::kRelease) because = FreeCause::kWithdraw;
  TakeName(share);
  share.ns->holding.Retire(share);
  Settle(share);
  because = before;
}

// The share may be gone after this, and its arena among the dying.
void Broker::State::Settle(Share& share) {
  if (!MayBeReused(share)) {
    if (share.withdrawn && share.leases == 0 && share.queued == 0 && share.fence.done()) Await(share);
    return;
  }
  Unwait(share);
  share.ns->holding.Free(share);
  Arena& arena = *share.arena;
  arena.Free(share.offset);
  // A client that never asks what came back loses it until it gives back the arena: its own loss, and bounded.
  if (arena.writer != nullptr && arena.writer->returned.size() < config.limits.shares_per_namespace) {
    arena.writer->returned.push_back({arena.id(), share.offset, share.size});
  }
  orphans.erase(&share);
  if (Session* const maker = FindSession(share.maker); maker != nullptr) maker->fenced.erase(share.facts->id);
  Drop(share);
  RetireIfIdle(arena);
}

void Broker::State::Drop(const Share& share) {
  const auto described = description_bytes_of_uid.find(share.maker_uid);
  const bool counted = described != description_bytes_of_uid.end();  // not if nothing was ever said
  if (counted && (described->second -= DescriptionBytes(share)) == 0) description_bytes_of_uid.erase(described);
  share.ns->Remove(share);
}

void Broker::State::Give(Session& session, Arena& arena) {
  session.uses[&arena].given = true;
  arena.readers.insert(&session);
  AddHolder(arena, session, Access::kRead);
}

void Broker::State::AddHolder(const Arena& arena, const Session& session, Access access) {
  if (!arena.block()->KnowsHolders()) holders[arena.id()].Add(session.id, access, session.peer.process);
}

// "Unmapped" may have been said before the client read of a lease whose handle needs no descriptor: it opens that
// again.
bool Broker::State::WillMapAgain(const Session& session, Arena& arena) const {
  const auto use = session.uses.find(&arena);
  return !arena.opaque.empty() && use != session.uses.end() && use->second.leases > 0;
}

void Broker::State::DropHolder(ArenaId arena, SessionId session, Access access) {
  const auto found = holders.find(arena);
  if (found == holders.end()) return;
  found->second.Drop(session, access);
  sweep_wanted.store(true);
}

void Broker::State::Forget(Session& session, Arena& arena) {
  const auto use = session.uses.find(&arena);
  if (use == session.uses.end()) return;
  use->second.given = false;
  arena.readers.erase(&session);
  if (use->second.leases == 0) session.uses.erase(use);
}

// Its writer is done with it: whole and frozen from now on, or dying if nothing is published in it.
void Broker::State::GiveBack(Arena& arena) {
  std::erase_if(arena.writer->returned, [&](const RangeOfArena& range) { return range.arena == arena.id(); });
  arena.writer = nullptr;
  if (arena.block()->MayBeEnforced()) to_enforce.emplace(&arena, Enforcement{});
  sweep_wanted.store(true);
  RetireIfIdle(arena);
}

void Broker::State::RetireIfIdle(Arena& arena) {
  if (arena.writer != nullptr || !arena.empty()) return;
  for (Session* reader : arena.readers) reader->uses.erase(&arena);
  if (arena.maker != nullptr) arena.maker->arenas.erase(arena.id());
  to_enforce.erase(&arena);
  arena.freed_by = because;
  auto node = arenas.extract(arena.id());
  dying.push_back(std::move(node.mapped()));
  sweep_wanted.store(true);
}

void Broker::State::Finish(Share& share) {
  --pending_fences;
  share.fence = {};
  Enter(share);
  Settle(share);
}

void Broker::State::Lose(Share& share) {
  ++lost_fences_total;
  if (!share.withdrawn) {
    TellShare(EventKind::kWithdraw, FindSession(share.maker), share, "lost");
    ++withdrawals_total;
    TakeName(share);
  }
  Finish(share);
}

void Broker::State::EndFence(Session& maker, ShareId id, bool lost, EndedFences* ended) {
  const auto found = maker.fenced.find(id);
  if (found == maker.fenced.end()) return;  // said before, or gone
  Share& share = *found->second;
  const bool awaited = share.awaiting > 0;
  if (!awaited) maker.fenced.erase(found);
  if (awaited) ended->awaited.push_back(Number(id));
  if (share.fence.done()) return;
  ended->finished.push_back(share.facts);
  if (lost) return Lose(share);
  Finish(share);
}

void Broker::State::Abandon(Session& session, Clock::time_point now) {
  // An event dies with its process, and nobody is left who could say that it happened. The bytes are given to nobody:
  // the arena gets no writer any more, and dies only when the process, which may still write it, is dead. Before its
  // own leases and holds end: those may be all that is left of such a share, and nobody finds this session any more.
  for (const auto& [id, share] : std::exchange(session.fenced, {})) {
    if (!share->fence.done()) Lose(*share);
  }
  while (!session.leases.empty()) EndLease(session, session.leases.begin()->first);
  CloseEnds(session, now);
  DropHolds(session);
  for (const auto& [arena, use] : session.uses) arena->readers.erase(&session);
  std::vector<Share*> go_along;
  const auto made = std::exchange(session.arenas, {});
  for (const auto& [id, arena] : made) {
    for (const auto& [offset, share] : arena->shares()) {
      if (share->withdrawn) continue;
      if (PolicyOf(share->ns->name()).withdraw_on_exit) {
        go_along.push_back(share);
        continue;
      }
      if (!share->facts->unnamed) continue;
      share->orphan_until = now + PolicyOf(share->ns->name()).orphan_grace;
      orphans.insert(share);
      sweep_wanted.store(true);
    }
    arena->maker = nullptr;
    if (arena->writer != nullptr) GiveBack(*arena);
  }
  for (Share* const share : go_along) Withdraw(*share, &session, "publisher_exit");
}

void Broker::State::WithdrawOrphans(Clock::time_point now) {
  std::vector<Share*> late;
  for (Share* share : orphans) {
    const bool read = share->leases > 0 || share->ns->holding.IsHeld(*share);
    if (!read && *share->orphan_until <= now) late.push_back(share);
  }
  for (Share* share : late) Withdraw(*share, nullptr, "orphaned");
}

bool Broker::State::Limit(Share& share, std::chrono::milliseconds asked) {
  const auto most = PolicyOf(share.ns->name()).share_lifetime;
  const auto lifetime = asked.count() == 0 || (most.count() != 0 && most < asked) ? most : asked;
  if (lifetime.count() == 0) return false;
  share.expires = share.born + std::min(lifetime, kLifetimeMax);
  const auto its = expiring.emplace(*share.expires, &share).first;
  return its == expiring.begin();
}

void Broker::State::WithdrawExpired(Clock::time_point now) {
  while (!expiring.empty() && expiring.begin()->first <= now) Withdraw(*expiring.begin()->second, nullptr, "expired");
}

// What is refused for good stays by contract.
void Broker::State::NoteSeal(ArenaId id, const Result<Immutability>& sealed, Clock::time_point now) {
  Arena* const arena = FindArena(id);
  if (arena == nullptr) return;
  const auto entry = to_enforce.find(arena);
  if (entry == to_enforce.end()) return;
  if (sealed.ok() && *sealed != Immutability::kEnforced) {
    entry->second.due = now + entry->second.pause;
    entry->second.pause = std::min(entry->second.pause * 2, kEnforcePauseMax);
    return;
  }
  if (sealed.ok()) MarkEnforced(*arena);
  to_enforce.erase(entry);
}

void Broker::State::DropUnusedNamespaces() {
  std::erase_if(payers, [](const auto& entry) { return entry.second->used() == 0; });
  std::erase_if(namespaces, [](const auto& entry) {
    Namespace& ns = *entry.second;
    if (!ns.unused()) return false;
    for (const Holding::Page& page : ns.holding.pages()) std::erase(page.session->holds_in, &ns);
    return true;
  });
}

bool Broker::sweep_wanted() const { return state_->sweep_wanted.load(); }

bool Broker::MayBeMappedElsewhere() const {
  std::unordered_map<ArenaId, Holders> holders;
  {
    const MutexLock lock(state_->mutex);
    holders = state_->holders;
  }
  return std::any_of(holders.begin(), holders.end(), [](auto& entry) {
    entry.second.DropDead();
    return !entry.second.empty();
  });
}

Broker::Swept Broker::Sweep(Clock::time_point now) {
  State& state = *state_;
  std::vector<std::unique_ptr<Arena>> dying;
  std::vector<std::pair<ArenaId, std::shared_ptr<MemoryBlock>>> unsealed;
  std::unordered_map<ArenaId, Holders> holders;
  {
    const MutexLock lock(state.mutex);
    state.WithdrawOrphans(now);
    state.WithdrawExpired(now);
    state.DropLingering(now);
    for (const auto& [id, session] : state.sessions) state.DropLateTickets(*session, now);
    for (const auto& [arena, enforcement] : state.to_enforce) {
      if (enforcement.due <= now) unsealed.emplace_back(arena->id(), arena->block());
    }
    dying.swap(state.dying);
    for (const auto& arena : dying) {
      if (const auto held = state.holders.find(arena->id()); held != state.holders.end()) holders.insert(*held);
    }
    state.sweep_wanted.store(false);  // what is let go from here on is for the next one
    state.being_swept += dying.size();
  }
  // A seal that is refused may have slept first (pages that somebody pinned): one of those is enough for one sweep.
  std::vector<std::pair<ArenaId, Result<Immutability>>> seals;
  for (const auto& [id, block] : unsealed) {
    seals.emplace_back(id, block->Seal());
    if (seals.back().second.ok() && *seals.back().second != Immutability::kEnforced) break;
  }
  unsealed.clear();

  // A block that a verb still exports right now is held, too: after that nobody can get at it any more.
  for (auto& [arena, held] : holders) held.DropDead();
  const auto taken = dying.size();
  const auto dead = std::partition(dying.begin(), dying.end(), [&](const std::unique_ptr<Arena>& arena) {
    const auto held = holders.find(arena->id());
    const bool mapped = held != holders.end() && !held->second.empty() && !Failpoint("quarantine");
    return mapped || arena->block().use_count() > 1 || arena->block()->HeldElsewhere();
  });
  Swept swept;
  struct Freed {
    ArenaId arena{};
    Device device;
    HandleKind kind{};
    uint64_t bytes = 0;
    FreeCause by{};
  };
  std::vector<Freed> freed;
  for (auto at = dead; at != dying.end(); ++at) {
    const Arena& arena = **at;
    swept.freed_bytes += arena.footprint();
    freed.push_back({arena.id(), arena.device(), arena.kind(), arena.footprint(), arena.freed_by});
  }
  dying.erase(dead, dying.end());  // O(bytes)

  const MutexLock lock(state.mutex);
  for (const Freed& one : freed) {
    state.holders.erase(one.arena);
    state.flows.Went(one.device, one.kind, one.bytes, one.by);
  }
  state.being_swept -= taken;
  std::move(dying.begin(), dying.end(), std::back_inserter(state.dying));
  for (const auto& [id, sealed] : seals) state.NoteSeal(id, sealed, now);
  state.DropUnusedNamespaces();
  if (!state.expiring.empty()) swept.next = state.expiring.begin()->first;
  swept.more_later =
      !state.dying.empty() || !state.to_enforce.empty() || !state.orphans.empty() || !state.lingering.empty();
  return swept;
}

}  // namespace arraybridge
