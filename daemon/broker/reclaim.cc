// How things end: leases, names, arenas. Bytes are given back in one order only: nobody names them (IsLetGo) and nobody
// holds them, then either their writer may carve them again, or the whole arena is dying; then nobody else has it
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
  --session.account->leases;
  if (share.orphan_until.has_value() && !share.withdrawn) {
    orphans.emplace(*share.orphan_until, &share);
    sweep_wanted.store(true);
  }
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
  if (!IsLetGo(share)) return;
  if (!share.ns->holding.IsKnownUnheld(share)) return Await(share);
  Reuse(share);
}

void Broker::State::Reuse(Share& share) {
  Unwait(share);
  share.ns->holding.Free(share);
  Arena& arena = *share.arena;
  arena.Free(share.offset);
  // A client that never asks what came back loses it until it gives back the arena: its own loss, and bounded.
  if (arena.writer != nullptr && arena.writer->returned.size() < config.limits.shares_per_namespace) {
    arena.writer->returned.push_back({arena.id(), share.offset, share.size});
  }
  if (share.orphan_until.has_value()) orphans.erase({*share.orphan_until, &share});
  // Also of a session that has ended and is cleared away in slices.
  if (share.fenced_by != nullptr) share.fenced_by->fenced.erase(share.facts->id);
  Drop(share);
  RetireIfIdle(arena);
}

void Broker::State::Drop(const Share& share) {
  Account& account = *accounts.at(share.maker_uid);
  --account.shares;
  account.description_bytes -= DescriptionBytes(share);
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
  arena.writer = nullptr;  // what came back of it is not carved again
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
  if (!awaited) {
    maker.fenced.erase(found);
    share.fenced_by = nullptr;
  }
  if (awaited) ended->awaited.push_back(Number(id));
  if (share.fence.done()) return;
  ended->finished.push_back(share.facts);
  if (lost) return Lose(share);
  Finish(share);
}

bool Broker::State::Limit(Share& share, std::chrono::milliseconds asked) {
  const auto most = PolicyOf(share.ns->name()).share_lifetime;
  const auto lifetime = asked.count() == 0 || (most.count() != 0 && most < asked) ? most : asked;
  if (lifetime.count() == 0) return false;
  share.expires = share.born + std::min(lifetime, kLifetimeMax);
  const auto its = expiring.emplace(*share.expires, &share).first;
  return its == expiring.begin();
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
  for (auto next = namespaces.begin(); next != namespaces.end();) {
    Namespace& ns = *next->second;
    if (!ns.unused()) {
      ++next;
      continue;
    }
    for (const Holding::Page& page : ns.holding.pages()) {
      std::erase(page.session->holds_in, &ns);
      for (const PinnedBytes& was : page.pinned) AddPinned(page.session->pinned, was.device, -was.bytes);
      UncountPage(page);
    }
    if (ns.holding.catalogue != nullptr) {
      --AccountOf(ns.uid())->catalogues;
      ns.holding.catalogue->Close();
    }
    to_look_at.erase({ns.uid(), &ns});
    dead.push_back(std::move(next->second));
    next = namespaces.erase(next);  // its key views the name of what is among the dead now
  }
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
  Swept swept;
  {
    const MutexLock lock(state.mutex);
    swept.unfinished = state.ClearSome(now);
    for (Namespace* const ns : state.waited_in) state.WantLook(*ns);  // orphans may be held no more
    state.LookFor(kLookNs);
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

  std::vector<std::unique_ptr<Namespace>> unused;  // die after the lock
  std::vector<std::unique_ptr<Session>> cleared;   // too
  std::vector<std::shared_ptr<const void>> dropped;
  const MutexLock lock(state.mutex);
  for (const Freed& one : freed) {
    state.holders.erase(one.arena);
    state.flows.Went(one.device, one.kind, one.bytes, one.by);
  }
  state.being_swept -= taken;
  std::move(dying.begin(), dying.end(), std::back_inserter(state.dying));
  for (const auto& [id, sealed] : seals) state.NoteSeal(id, sealed, now);
  state.DropUnusedNamespaces();
  state.DropUnusedAccounts();
  unused.swap(state.dead);
  cleared.swap(state.cleared);
  dropped.swap(state.dropped);
  swept.next = state.NextDue();
  swept.more_later =
      !state.dying.empty() || !state.to_enforce.empty() || !state.orphans.empty() || !state.lingering.empty();
  return swept;
}

}  // namespace arraybridge
