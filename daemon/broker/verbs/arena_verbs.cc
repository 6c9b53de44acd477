// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on arenas: allocate, seal, export, and return ranges to the writer.
#include <algorithm>
#include <utility>

#include "daemon/broker/verbs/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

// Ranges looked at with the lock held once; the next call continues. Only a client that gives back arenas before it has
// carved its returned ranges makes this loop skip ranges.
constexpr uint64_t kReturnedAtOnce = 1024;

Status QuotaExceeded(const Peer& peer, uint64_t footprint, uint64_t used, uint64_t bytes_per_uid) {
  return ResourceExhausted(peer.who(), ": ", footprint, " bytes exceed limits.bytes_per_uid (", used, " of ",
                           bytes_per_uid, " in use)")
      .Because("QUOTA_EXCEEDED")
      .With("limit", "bytes_per_uid")
      .With("wanted_bytes", std::to_string(footprint))
      .With("used_bytes", std::to_string(used))
      .With("quota_bytes", std::to_string(bytes_per_uid));
}

}  // namespace

// Checks limits that waiting does not lift.
Result<Backends::Served> Broker::State::ServedFor(SessionId session, const AllocateCall& call) const {
  const Limits& limits = config.limits;
  const std::string_view ns = NamespaceNameOf(call.ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", ns, limits.name_bytes_max));
  if (call.size == 0) return InvalidArgument("an arena of 0 bytes").Because("BAD_SIZE");
  const MutexLock lock(mutex);
  const Session* const found = sessions.Find(session);
  if (found == nullptr) return NoSession();
  AB_ASSIGN_OR_RETURN(const auto key, rights.KeyOf(found->peer, call.ns, Right::kWrite));
  auto served = backends.For(found->peer, call.device);
  if (!served.ok()) return served;
  const uint64_t footprint = served->backend->Footprint(served->device, call.size);
  const uint64_t capacity = served->backend->usage(served->device).capacity_bytes;
  if (footprint == 0 || footprint > capacity) {
    return ResourceExhausted(call.size, " bytes can never fit: the device has ", capacity).Because("DEVICE_TOO_SMALL");
  }
  const uint64_t quota = namespaces.QuotaBytes(key);
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

// The first Charge creates the namespace.
Result<Broker::State::Reserved> Broker::State::Reserve(Session& session, const NamespaceKey& key, uint64_t footprint) {
  const Limits& limits = config.limits;
  if (session.arenas.size() + session.allocating >= limits.arenas_per_session) {
    return AtLimit("TOO_MANY_ARENAS", "arenas_per_session", limits.arenas_per_session);
  }
  const std::shared_ptr<Quota>& memory = session.account->memory;
  AB_RETURN_IF_ERROR(accounts.CheckObjects(session, "TOO_MANY_ARENAS", object_bytes::kArena));
  AB_RETURN_IF_ERROR(accounts.CheckDescriptors(session, kDescriptorsOfArena, 1));
  const uint64_t bytes_per_uid = limits.bytes_per_uid;
  const uint64_t has_bytes = memory->used();
  if (bytes_per_uid != 0 && footprint > bytes_per_uid - std::min(has_bytes, bytes_per_uid)) {
    return QuotaExceeded(session.peer, footprint, has_bytes, bytes_per_uid);
  }
  AB_ASSIGN_OR_RETURN(const auto owner, namespaces.FindOrMake(key, session.peer.uid));
  // If the charge is refused, the next sweep drops a fresh namespace.
  AB_ASSIGN_OR_RETURN(auto charge, owner->ChargeFor(footprint, memory));
  return Reserved{std::move(charge), owner};
}

Result<AllocatedArena> Broker::Allocate(SessionId session, const AllocateCall& call) {
  State& state = *state_;
  AB_ASSIGN_OR_RETURN(const auto served, state.ServedFor(session, call));
  MemoryBackend& backend = *served.backend;
  const Device& device = served.device;
  std::optional<State::Reserved> reserved;
  ArenaId id{};
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
    AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, call.ns, Right::kWrite));
    AB_ASSIGN_OR_RETURN(auto granted, state.Reserve(*found, key, backend.Footprint(device, call.size)));
    AB_RETURN_IF_ERROR(state.journal.CheckRoom());
    reserved.emplace(std::move(granted));
    id = state.arenas.NextId();
    ++found->allocating;
  }
  const auto generation = RandomBytes<uint64_t>();
  std::shared_ptr<MemoryBlock> block;  // destroyed with the Charge after the lock is released, if the session has ended
  StoreGuard stored;                   // likewise
  const auto begun = Clock::now();
  auto writable = [&]() -> Result<Handle> {
    AB_ASSIGN_OR_RETURN(block, backend.AllocateWithProgress(device, call.size, call.progress));
    if (const int file = block->descriptor(); file >= 0) {
      auto kept =
          state.journal.Store(StoredName(kStoredArena, Number(id)), {&file, 1}, DescriptorStore::Until::kHandled);
      if (!kept.ok()) return kept.status();
      stored = *std::move(kept);
      static_cast<void>(Failpoint("arena_stored"));
    }
    return block->Export(Access::kWrite);
  }();
  const auto took = Clock::now() - begun;

  const MutexLock lock(state.mutex);
  if (writable.ok()) state.arenas.flows.Took(device, backend.kind(), took);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  --found->allocating;
  if (!writable.ok()) return writable.status();
  // The session may have lost its right while the backend populated.
  const NamespaceKey its{reserved->ns->uid(), reserved->ns->name()};
  if (!state.rights.MayUse(found->peer, its, Right::kWrite))
    return state.rights.KeyOf(found->peer, call.ns, Right::kWrite).status();
  auto arena = std::make_unique<Arena>(id, generation, reserved->ns, found, std::move(reserved->charge),
                                       std::move(block), device, backend.kind());
  arena->maker_uid = found->peer.uid;
  arena->request = call.request;
  arena->stored = std::move(stored);
  AllocatedArena answer{arena->Describe()};
  answer.handle.descriptor = std::move(writable->descriptor);
  answer.handle.opaque = arena->opaque = std::move(writable->opaque);
  state.events.EmitAllocate(*found, *arena);
  state.arenas.Add(*found, std::move(arena));
  static_cast<void>(Failpoint("arena_recorded"));
  return answer;
}

Status Broker::Mapped(SessionId session, ArenaId arena) {
  State& state = *state_;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
    const Arena* const own = state.arenas.FindWritable(*found, arena);
    if (own == nullptr) return NoArena(arena);
    if (own->immutability.has_value()) return Ok();
    block = own->block();
  }
  const auto sealed = block->Seal();
  const MutexLock lock(state.mutex);
  Arena* const own = state.arenas.Find(arena);
  if (own == nullptr) return NoArena(arena);
  if (!sealed.ok()) return own->not_sealed = sealed.status();
  if (own->immutability != Immutability::kEnforced) own->immutability = *sealed;
  state.journal.Put(*own);
  return Ok();
}

Result<Handle> Broker::Export(SessionId session, ArenaId arena, uint64_t generation, ChannelEndId receiving) {
  State& state = *state_;
  Handle handle;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
    const bool sent = receiving != ChannelEndId{};
    Arena* const readable = sent ? state.arenas.Find(arena) : state.arenas.FindReadable(*found, arena);
    if (readable == nullptr) return NoArena(arena);
    if (sent && !state.IsInDirectChannelOf(*found, receiving, *readable)) return NoArena(arena);
    if (readable->generation() != generation && !Failpoint("arena_generation")) return NoArena(arena);
    handle = readable->Describe();
    block = readable->block();
    state.arenas.AddReader(*found, *readable);
  }
  auto exported = block->Export(Access::kRead);
  if (!exported.ok()) return exported.status();  // the session asks again; an arena that it already has costs nothing
  handle.descriptor = std::move(exported->descriptor);
  handle.opaque = std::move(exported->opaque);
  return handle;
}

std::vector<RangeOfArena> Broker::TakeReturned(SessionId session, size_t most) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return {};
  std::vector<RangeOfArena> taken;
  for (uint64_t left = kReturnedAtOnce; taken.size() < most && left > 0 && !found->returned.empty(); --left) {
    // The session may have given the arena back since then; its ranges are not carved again.
    if (state.arenas.FindWritable(*found, found->returned.front().arena) != nullptr)
      taken.push_back(found->returned.front());
    state.journal.Erase(found->returned.front().record);
    found->returned.pop_front();
  }
  return taken;
}

void Broker::KeepReturned(SessionId session, std::span<const RangeOfArena> ranges) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return;
  for (const RangeOfArena& range : ranges) {
    // the same limit as for ranges that return by themselves
    if (found->returned.size() >= state.config.limits.shares_per_namespace) return;
    // The session may have given the arena back since then; its ranges are not carved again.
    if (state.arenas.FindWritable(*found, range.arena) == nullptr) continue;
    found->returned.push_back(range);
    found->returned.back().record = state.journal.Add(record::kReturned, RecordOf(range, session));
  }
}

}  // namespace arraybridge::daemon
