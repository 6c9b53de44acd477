// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/arenas.h"

#include <algorithm>
#include <iterator>

#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/tables/hazards.h"

namespace arraybridge::daemon {
namespace {

constexpr std::chrono::milliseconds kEnforcePauseMax{60'000};

}  // namespace

Status NoArena(ArenaId arena) { return NotFound("there is no arena ", Number(arena)).Because("ARENA_NOT_FOUND"); }

Arena* Arenas::Find(ArenaId id) const {
  const auto found = arenas_.find(id);
  return found == arenas_.end() ? nullptr : found->second.get();
}

Arena* Arenas::FindWritable(const Session& session, ArenaId id) const {
  Arena* const arena = Find(id);
  return arena != nullptr && arena->writer == &session ? arena : nullptr;
}

Arena* Arenas::FindReadable(const Session& session, ArenaId id) const {
  Arena* const arena = Find(id);
  if (arena == nullptr) return nullptr;
  if (arena->maker == &session) return arena;
  const auto use = session.uses.find(arena);
  return use != session.uses.end() && use->second.leases > 0 ? arena : nullptr;
}

void Arenas::Add(Session& maker, std::unique_ptr<Arena> arena) {
  AddHolder(*arena, maker, Access::kWrite);
  flows.Came(arena->device(), arena->kind(), arena->footprint());
  const ArenaId id = arena->id();
  journal_.Put(*arena);
  maker.arenas.emplace(id, arena.get());
  arenas_.emplace(id, std::move(arena));
}

void Arenas::Restore(Session* maker, std::unique_ptr<Arena> arena) {
  if (maker != nullptr && maker->peer.process != nullptr) AddHolder(*arena, *maker, Access::kWrite);
  flows.Came(arena->device(), arena->kind(), arena->footprint());
  const ArenaId id = arena->id();
  if (maker != nullptr) {
    maker->arenas.emplace(id, arena.get());
  } else {
    arena->ns()->unowned_bytes += arena->footprint();
  }
  if (arena->writer == nullptr && arena->block()->MayBeEnforced()) to_enforce_.emplace(arena.get(), Enforcement{});
  arenas_.emplace(id, std::move(arena));
}

void Arenas::Continue(const Session& session) {
  for (const auto& [id, arena] : session.arenas) {
    if (arena->writer == &session) AddHolder(*arena, session, Access::kWrite);
  }
}

void Arenas::RetireIdle() {
  std::vector<Arena*> all;
  for (const auto& [id, arena] : arenas_) all.push_back(arena.get());
  for (Arena* const arena : all) RetireIfIdle(*arena);
}

void Arenas::AddReader(Session& session, Arena& arena) {
  session.uses[&arena].given = true;
  arena.readers.insert(&session);
  AddHolder(arena, session, Access::kRead);
}

void Arenas::DropReader(Session& session, Arena& arena) {
  const auto use = session.uses.find(&arena);
  if (use == session.uses.end()) return;
  use->second.given = false;
  arena.readers.erase(&session);
  if (use->second.leases == 0) session.uses.erase(use);
}

bool Arenas::WillMapAgain(const Session& session, Arena& arena) {
  const auto use = session.uses.find(&arena);
  return !arena.opaque.empty() && use != session.uses.end() && use->second.leases > 0;
}

void Arenas::AddHolder(const Arena& arena, const Session& session, Access access) {
  if (!arena.block()->KnowsHolders()) holders_[arena.id()].Add(session.id, access, session.peer.process);
}

void Arenas::DropHolder(ArenaId arena, SessionId session, Access access) {
  const auto found = holders_.find(arena);
  if (found == holders_.end()) return;
  found->second.Drop(session, access);
  flags_.sweep_wanted.store(true);
}

void Arenas::GiveBack(Arena& arena) {
  arena.writer = nullptr;  // returned ranges are not carved again
  if (arena.block()->MayBeEnforced()) to_enforce_.emplace(&arena, Enforcement{});
  flags_.sweep_wanted.store(true);
  if (!arena.empty()) journal_.Put(arena);
  RetireIfIdle(arena);
}

void Arenas::RetireIfIdle(Arena& arena) {
  if (arena.writer != nullptr || !arena.empty()) return;
  for (Session* reader : arena.readers) reader->uses.erase(&arena);
  if (arena.maker != nullptr) {
    arena.maker->arenas.erase(arena.id());
  } else {
    arena.ns()->unowned_bytes -= arena.footprint();
  }
  to_enforce_.erase(&arena);
  arena.freed_by = because;
  auto node = arenas_.extract(arena.id());
  dying_.push_back(std::move(node.mapped()));
  flags_.sweep_wanted.store(true);
}

void Arenas::MarkEnforced(Arena& arena) {
  arena.immutability = Immutability::kEnforced;
  Hazards::MarkEnforced(arena);
}

void Arenas::NoteSeal(ArenaId id, const Result<Immutability>& sealed, Clock::time_point now) {
  Arena* const arena = Find(id);
  if (arena == nullptr) return;
  const auto entry = to_enforce_.find(arena);
  if (entry == to_enforce_.end()) return;
  if (sealed.ok() && *sealed != Immutability::kEnforced) {
    entry->second.due = now + entry->second.pause;
    entry->second.pause = std::min(entry->second.pause * 2, kEnforcePauseMax);
    return;
  }
  if (sealed.ok()) MarkEnforced(*arena);
  to_enforce_.erase(entry);
}

Arenas::Swept Arenas::TakeForSweep(Clock::time_point now) {
  Swept swept;
  for (const auto& [arena, enforcement] : to_enforce_) {
    if (enforcement.due <= now) swept.unsealed.emplace_back(arena->id(), arena->block());
  }
  swept.dying.swap(dying_);
  being_swept_ += swept.dying.size();
  for (const auto& arena : swept.dying) {
    if (const auto held = holders_.find(arena->id()); held != holders_.end()) swept.holders.insert(*held);
  }
  return swept;
}

void Arenas::PutBack(size_t taken, std::vector<std::unique_ptr<Arena>> dying) {
  being_swept_ -= taken;
  std::move(dying.begin(), dying.end(), std::back_inserter(dying_));
}

}  // namespace arraybridge::daemon
