// The Broker's verbs on arenas: allocate one, seal it, export it, ask what came back of it; and the tickets for them.
#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/broker/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge {
namespace {

// Ranges looked at with the lock held once; the next call goes on. A client that gives back only what it carves no more
// never has one that is looked at in vain.
constexpr uint64_t kReturnedAtOnce = 1024;

}  // namespace

// Limits that waiting does not lift.
Result<Broker::State::Served> Broker::State::ServedFor(SessionId session, const AllocateCall& call) const {
  const Limits& limits = config.limits;
  const std::string_view ns = NamespaceNameOf(call.ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", ns, limits.name_bytes_max));
  if (call.size == 0) return InvalidArgument("an arena of 0 bytes").Because("BAD_SIZE");
  if (limits.allocation_bytes_max != 0 && call.size > limits.allocation_bytes_max) {
    return AtLimit("ALLOCATION_TOO_LARGE", "allocation_bytes_max", limits.allocation_bytes_max);
  }
  const MutexLock lock(mutex);
  const Session* const found = FindSession(session);
  if (found == nullptr) return NoSession();
  const auto key = KeyOf(*found, call.ns, Right::kWrite);
  if (!key.ok()) return key.status();
  auto served = BackendFor(found->peer, call.device);
  if (!served.ok()) return served;
  const uint64_t footprint = served->backend->Footprint(served->device, call.size);
  const uint64_t capacity = served->backend->usage(served->device).capacity_bytes;
  if (footprint == 0 || footprint > capacity) {
    return ResourceExhausted(call.size, " bytes can never fit: the device has ", capacity).Because("DEVICE_TOO_SMALL");
  }
  const uint64_t quota = quota_bytes(*key);
  if (footprint > quota) {
    return ResourceExhausted("namespace '", ns, "': ", footprint, " bytes can never fit: the quota is ", quota)
        .Because("QUOTA_TOO_SMALL");
  }
  if (limits.bytes_per_uid != 0 && footprint > limits.bytes_per_uid) {
    return ResourceExhausted(footprint, " bytes can never fit: limits.bytes_per_uid is ", limits.bytes_per_uid)
        .Because("QUOTA_TOO_SMALL");
  }
  if (found->arenas.size() + found->allocating < limits.arenas_per_session) return served;
  return AtLimit("TOO_MANY_ARENAS", "arenas_per_session", limits.arenas_per_session);
}

Status Broker::CheckAllocate(SessionId session, const AllocateCall& call) {
  return state_->ServedFor(session, call).status();
}

uint64_t Broker::State::NamespacesOf(uint32_t uid) const {
  uint64_t count = 0;
  for (auto ns = namespaces.lower_bound(NamespaceKey{uid, {}}); ns != namespaces.end() && ns->first.uid == uid; ++ns) {
    ++count;
  }
  return count;
}

// The namespace comes into being with its first Charge.
Result<Broker::State::Reserved> Broker::State::Reserve(Session& session, const NamespaceKey& key, uint64_t footprint) {
  const Limits& limits = config.limits;
  if (session.arenas.size() + session.allocating >= limits.arenas_per_session) {
    return AtLimit("TOO_MANY_ARENAS", "arenas_per_session", limits.arenas_per_session);
  }
  const std::shared_ptr<Quota>& memory = session.account->memory;
  if (memory->charges() >= limits.arenas_per_uid) {
    return AtLimit("TOO_MANY_ARENAS", "arenas_per_uid", limits.arenas_per_uid);
  }
  AB_RETURN_IF_ERROR(CheckDescriptors(session, kDescriptorsOfArena));
  const uint64_t bytes_per_uid = limits.bytes_per_uid;
  const uint64_t has_bytes = memory->used();
  if (bytes_per_uid != 0 && footprint > bytes_per_uid - std::min(has_bytes, bytes_per_uid)) {
    return ResourceExhausted(session.peer.who(), ": ", footprint, " bytes exceed limits.bytes_per_uid (", has_bytes,
                             " of ", bytes_per_uid, " in use)")
        .Because("QUOTA_EXCEEDED")
        .With("limit", "bytes_per_uid")
        .With("wanted_bytes", std::to_string(footprint))
        .With("used_bytes", std::to_string(has_bytes))
        .With("quota_bytes", std::to_string(bytes_per_uid));
  }
  Namespace* owner = FindNamespace(key);
  if (owner == nullptr) {
    const auto made = MakeNamespace(session, key);
    if (!made.ok()) return made.status();
    owner = *made;
  }
  // If it is refused, the next sweep finds a fresh namespace unused.
  auto charge = owner->ChargeFor(footprint, memory);
  if (!charge.ok()) return charge.status();
  return Reserved{*std::move(charge), owner};
}

// REQUIRES: it is not there.
Result<Namespace*> Broker::State::MakeNamespace(const Session& session, const NamespaceKey& key) {
  const Limits& limits = config.limits;
  DropUnusedNamespaces();
  if (!dead.empty()) sweep_wanted.store(true);
  // Those that users share are as many as the operator wrote down, and nobody's own can take their place.
  if (key.uid != kSharedByUsers) {
    if (NamespacesOf(session.peer.uid) >= limits.namespaces_per_uid) {
      return AtLimit("TOO_MANY_NAMESPACES", "namespaces_per_uid", limits.namespaces_per_uid);
    }
    const auto shared = std::distance(namespaces.lower_bound({kSharedByUsers, {}}), namespaces.end());
    if (namespaces.size() - static_cast<uint64_t>(shared) >= limits.namespaces) {
      return AtLimit("TOO_MANY_NAMESPACES", "namespaces", limits.namespaces);
    }
  }
  auto fresh = std::make_unique<Namespace>(key.uid, std::string(key.name), quota_bytes(key));
  // Those that users share have one each: they are nobody's in common.
  const bool shared = key.uid == kSharedByUsers;
  fresh->holding.budget = shared ? std::make_shared<LookBudget>() : AccountOf(key.uid)->looks;
  const NamespaceKey its{fresh->uid(), fresh->name()};
  return namespaces.emplace(its, std::move(fresh)).first->second.get();
}

Result<AllocatedArena> Broker::Allocate(SessionId session, const AllocateCall& call) {
  State& state = *state_;
  const auto served = state.ServedFor(session, call);
  if (!served.ok()) return served.status();
  MemoryBackend& backend = *served->backend;
  const Device& device = served->device;
  std::optional<State::Reserved> reserved;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    const auto key = state.KeyOf(*found, call.ns, Right::kWrite);
    if (!key.ok()) return key.status();
    auto granted = state.Reserve(*found, *key, backend.Footprint(device, call.size));
    if (!granted.ok()) return granted.status();
    reserved.emplace(*std::move(granted));
    ++found->allocating;
  }
  const auto generation = RandomBytes<uint64_t>();
  std::shared_ptr<MemoryBlock> block;  // with the Charge dies after the lock below if the session has gone
  const auto begun = Clock::now();
  auto writable = [&]() -> Result<Handle> {
    auto allocated = backend.AllocateWithProgress(device, call.size, call.progress);
    if (!allocated.ok()) return allocated.status();
    block = *std::move(allocated);
    return block->Export(Access::kWrite);
  }();
  const auto took = Clock::now() - begun;

  const MutexLock lock(state.mutex);
  if (writable.ok()) state.flows.Took(device, backend.kind(), took);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  --found->allocating;
  if (!writable.ok()) return writable.status();
  // Populating takes its time: meanwhile the right may have gone.
  const NamespaceKey its{reserved->ns->uid(), reserved->ns->name()};
  if (!state.MayUse(found->peer, its, Right::kWrite)) return state.KeyOf(*found, call.ns, Right::kWrite).status();
  const ArenaId id{++state.last_arena};
  auto arena = std::make_unique<Arena>(id, generation, reserved->ns, found, std::move(reserved->charge),
                                       std::move(block), device, backend.kind());
  AllocatedArena answer{arena->Describe()};
  answer.handle.descriptor = std::move(writable->descriptor);
  answer.handle.opaque = arena->opaque = std::move(writable->opaque);
  state.AddHolder(*arena, *found, Access::kWrite);
  state.TellArena(*found, *arena);
  state.flows.Came(device, backend.kind(), arena->footprint());
  found->arenas.emplace(id, arena.get());
  state.arenas.emplace(id, std::move(arena));
  return answer;
}

Status Broker::Mapped(SessionId session, ArenaId arena) {
  State& state = *state_;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    const Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    const Arena* const own = state.FindWritable(*found, arena);
    if (own == nullptr) return NoArena(arena);
    if (own->immutability.has_value()) return Ok();
    block = own->block();
  }
  const auto sealed = block->Seal();
  if (!sealed.ok()) return sealed.status();
  const MutexLock lock(state.mutex);
  Arena* const own = state.FindArena(arena);
  if (own == nullptr) return NoArena(arena);
  if (own->immutability != Immutability::kEnforced) own->immutability = *sealed;
  return Ok();
}

Result<Handle> Broker::Export(SessionId session, ArenaId arena, uint64_t generation, ChannelEndId receiving) {
  State& state = *state_;
  Handle handle;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    Arena* readable = state.FindReadable(*found, arena);
    if (readable == nullptr) {
      Arena* const sent = state.FindArena(arena);
      if (sent != nullptr && state.IsInDirectChannelOf(*found, receiving, *sent)) readable = sent;
    }
    if (readable == nullptr) return NoArena(arena);
    const bool stale = readable->generation() != generation;
    if (stale && !Failpoint("arena_generation")) return NoArena(arena);
    handle = readable->Describe();
    block = readable->block();
    state.Give(*found, *readable);
  }
  auto exported = block->Export(Access::kRead);
  if (!exported.ok()) return exported.status();  // the session asks again; that it has the arena costs nothing
  handle.descriptor = std::move(exported->descriptor);
  handle.opaque = std::move(exported->opaque);
  return handle;
}

std::vector<RangeOfArena> Broker::TakeReturned(SessionId session, size_t most) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return {};
  std::vector<RangeOfArena> taken;
  for (uint64_t left = kReturnedAtOnce; taken.size() < most && left > 0 && !found->returned.empty(); --left) {
    // It may have given the arena back since: then it is carved no more.
    if (state.FindWritable(*found, found->returned.front().arena) != nullptr) taken.push_back(found->returned.front());
    found->returned.pop_front();
  }
  return taken;
}

void Broker::KeepReturned(SessionId session, std::span<const RangeOfArena> ranges) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return;
  for (const RangeOfArena& range : ranges) {
    if (found->returned.size() >= state.config.limits.shares_per_namespace) return;  // as of what comes back by itself
    // It may have given the arena back since: then they are carved no more.
    if (state.FindWritable(*found, range.arena) != nullptr) found->returned.push_back(range);
  }
}

void Broker::State::DropLateTickets(Session& session, Clock::time_point now) {
  tickets_expired_total += session.tickets.DropLate(now);
}

Result<Token> Broker::IssueTicket(SessionId session, ArenaId arena, Access access) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  const auto now = Clock::now();
  const Ticket ticket{RandomBytes<Token>(), arena, access, now + limits.ticket_lifetime.get()};
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const bool writes = access == Access::kWrite;
  if ((writes ? state.FindWritable(*found, arena) : state.FindReadable(*found, arena)) == nullptr) {
    return NoArena(arena);
  }
  state.DropLateTickets(*found, now);
  if (found->tickets.size() >= limits.tickets_per_session_max) {
    return AtLimit("TOO_MANY_TICKETS", "tickets_per_session_max", limits.tickets_per_session_max);
  }
  found->tickets.Add(ticket);
  return ticket.token;
}

Result<Broker::Redeemed> Broker::Redeem(SessionId session, std::span<const uint8_t> token) {
  State& state = *state_;
  Redeemed redeemed;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    const auto now = Clock::now();
    state.DropLateTickets(*found, now);
    const auto ticket = found->tickets.Take(token, now);
    redeemed.writable = ticket.has_value() && ticket->access == Access::kWrite;
    Arena* arena = nullptr;
    if (ticket.has_value()) {
      // Asked again: the lease that justified the ticket may have ended since.
      arena = redeemed.writable ? state.FindWritable(*found, ticket->arena) : state.FindReadable(*found, ticket->arena);
    }
    if (arena == nullptr) {
      ++state.tickets_refused_total;
      return NotFound("no such ticket").Because("TICKET_NOT_FOUND");
    }
    ++state.tickets_redeemed_total;
    redeemed.handle = arena->Describe();
    block = arena->block();
    if (!redeemed.writable) state.Give(*found, *arena);
  }
  auto exported = block->Export(redeemed.writable ? Access::kWrite : Access::kRead);
  if (!exported.ok()) return exported.status();
  redeemed.handle.descriptor = std::move(exported->descriptor);
  redeemed.handle.opaque = std::move(exported->opaque);
  return redeemed;
}

}  // namespace arraybridge
