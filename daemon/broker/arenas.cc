// The Broker's verbs on arenas: allocate one, seal it, export it, ask what came back of it; and the tickets for them.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {

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
  auto served = BackendFor(found->peer, call.device);
  if (!served.ok()) return served;
  const uint64_t footprint = served->backend->Footprint(served->device, call.size);
  const uint64_t capacity = served->backend->usage(served->device).capacity_bytes;
  if (footprint == 0 || footprint > capacity) {
    return ResourceExhausted(call.size, " bytes can never fit: the device has ", capacity).Because("DEVICE_TOO_SMALL");
  }
  const uint64_t quota = quota_bytes();
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

Broker::State::Belongings Broker::State::BelongingsOf(uint32_t uid) const {
  Belongings belongings;
  for (auto ns = namespaces.lower_bound(NamespaceKey{uid, {}}); ns != namespaces.end() && ns->first.uid == uid; ++ns) {
    ++belongings.namespaces;
    belongings.arenas += ns->second->quota().charges();
    belongings.bytes += ns->second->quota().used();
  }
  return belongings;
}

// The namespace comes into being with its first Charge.
Result<Charge> Broker::State::Reserve(Session& session, std::string_view ns, uint64_t footprint) {
  const Limits& limits = config.limits;
  if (session.arenas.size() + session.allocating >= limits.arenas_per_session) {
    return AtLimit("TOO_MANY_ARENAS", "arenas_per_session", limits.arenas_per_session);
  }
  const Belongings has = BelongingsOf(session.peer.uid);
  if (has.arenas >= limits.arenas_per_uid) {
    return AtLimit("TOO_MANY_ARENAS", "arenas_per_uid", limits.arenas_per_uid);
  }
  const uint64_t bytes_per_uid = limits.bytes_per_uid;
  if (bytes_per_uid != 0 && footprint > bytes_per_uid - std::min(has.bytes, bytes_per_uid)) {
    return ResourceExhausted("user ", session.peer.uid, ": ", footprint, " bytes exceed limits.bytes_per_uid (",
                             has.bytes, " of ", bytes_per_uid, " in use)")
        .Because("QUOTA_EXCEEDED")
        .With("limit", "bytes_per_uid")
        .With("wanted_bytes", std::to_string(footprint))
        .With("used_bytes", std::to_string(has.bytes))
        .With("quota_bytes", std::to_string(bytes_per_uid));
  }
  if (Namespace* const found = FindNamespace(session.peer.uid, ns); found != nullptr) {
    return found->ChargeFor(footprint);
  }
  const auto made = MakeNamespace(session.peer.uid, ns);
  if (!made.ok()) return made.status();
  return (*made)->ChargeFor(footprint);  // if it is refused, the next sweep finds the namespace unused
}

// REQUIRES: it is not there.
Result<Namespace*> Broker::State::MakeNamespace(uint32_t uid, std::string_view ns) {
  const Limits& limits = config.limits;
  DropUnusedNamespaces();
  if (BelongingsOf(uid).namespaces >= limits.namespaces_per_uid) {
    return AtLimit("TOO_MANY_NAMESPACES", "namespaces_per_uid", limits.namespaces_per_uid);
  }
  if (namespaces.size() >= limits.namespaces) return AtLimit("TOO_MANY_NAMESPACES", "namespaces", limits.namespaces);
  auto fresh = std::make_unique<Namespace>(uid, std::string(ns), quota_bytes());
  const NamespaceKey key{fresh->uid(), fresh->name()};
  return namespaces.emplace(key, std::move(fresh)).first->second.get();
}

Result<AllocatedArena> Broker::Allocate(SessionId session, const AllocateCall& call) {
  State& state = *state_;
  const std::string_view ns = NamespaceNameOf(call.ns);
  const auto served = state.ServedFor(session, call);
  if (!served.ok()) return served.status();
  MemoryBackend& backend = *served->backend;
  const Device& device = served->device;
  std::optional<Charge> charge;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    auto reserved = state.Reserve(*found, ns, backend.Footprint(device, call.size));
    if (!reserved.ok()) return reserved.status();
    charge.emplace(*std::move(reserved));
    ++found->allocating;
  }
  const auto generation = RandomBytes<uint64_t>();
  std::shared_ptr<MemoryBlock> block;  // with the Charge dies after the lock below if the session has gone
  auto writable = [&]() -> Result<Handle> {
    auto allocated = backend.Allocate(device, call.size);
    if (!allocated.ok()) return allocated.status();
    block = *std::move(allocated);
    return block->Export(Access::kWrite);
  }();

  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  --found->allocating;
  if (!writable.ok()) return writable.status();
  const ArenaId id{++state.last_arena};
  Namespace* const owner = state.FindNamespace(found->peer.uid, ns);  // there: the Charge keeps it
  auto arena = std::make_unique<Arena>(id, generation, owner, found, *std::move(charge), std::move(block), device,
                                       backend.kind());
  AllocatedArena answer{arena->Describe()};
  answer.handle.descriptor = std::move(writable->descriptor);
  answer.handle.opaque = arena->opaque = std::move(writable->opaque);
  state.AddHolder(*arena, *found, Access::kWrite);
  state.TellArena(*found, *arena);
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

Result<Handle> Broker::Export(SessionId session, ArenaId arena, uint64_t generation) {
  State& state = *state_;
  Handle handle;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    Arena* const readable = state.FindReadable(*found, arena);
    if (readable == nullptr || readable->generation() != generation) return NoArena(arena);
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
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, found->returned.size()));
  const auto end = found->returned.begin() + count;
  std::vector<RangeOfArena> taken(found->returned.begin(), end);
  found->returned.erase(found->returned.begin(), end);
  return taken;
}

void Broker::KeepReturned(SessionId session, std::span<const RangeOfArena> ranges) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return;
  for (const RangeOfArena& range : ranges) {
    // It may have given the arena back since: then they are carved no more.
    if (state.FindWritable(*found, range.arena) != nullptr) found->returned.push_back(range);
  }
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
  found->tickets.DropLate(now);
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
    const auto ticket = found->tickets.Take(token, Clock::now());
    redeemed.writable = ticket.has_value() && ticket->access == Access::kWrite;
    Arena* arena = nullptr;
    if (ticket.has_value()) {
      // Asked again: the lease that justified the ticket may have ended since.
      arena = redeemed.writable ? state.FindWritable(*found, ticket->arena) : state.FindReadable(*found, ticket->arena);
    }
    if (arena == nullptr) return NotFound("no such ticket").Because("TICKET_NOT_FOUND");
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
