// The Broker's verbs on shares: publish a range, lease it, take its name away.
#include <array>
#include <cstdio>
#include <utility>

#include "daemon/broker/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge {
namespace {

std::string InventName() {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "unnamed-%016llx",
                static_cast<unsigned long long>(RandomBytes<uint64_t>()));  // NOLINT(google-runtime-int): printf's type
  return name.data();
}

Share* Find(const Namespace* ns, const ShareKey& key) {
  if (ns == nullptr) return nullptr;
  Share* const share = key.id == ShareId{} ? ns->FindByName(key.name) : ns->FindById(key.id);
  if (share == nullptr) return nullptr;
  const bool stale = key.generation != 0 && key.generation != share->facts->generation;
  return stale && !Failpoint("share_generation") ? nullptr : share;
}

// REQUIRES: Find gave null. SHARE_GONE: it never comes back; SHARE_NOT_FOUND: it may come. A name that could not be one
// is not echoed.
Status NoShare(std::string_view ns, const ShareKey& key, const Limits& limits) {
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", NamespaceNameOf(ns), limits.name_bytes_max));
  const bool by_id = key.id != ShareId{};
  if (!by_id) AB_RETURN_IF_ERROR(CheckName("the share's name", key.name, limits.name_bytes_max));
  std::string what = by_id ? Concat("share ", Number(key.id)) : Concat("share '", key.name, "'");
  if (key.generation != 0) what += Concat(", generation ", key.generation, ",");
  Status missing = NotFound(what, " is not there in namespace '", NamespaceNameOf(ns), "'")
                       .Because(by_id ? "SHARE_GONE" : "SHARE_NOT_FOUND");
  return by_id ? missing : std::move(missing).With("share", std::string(key.name));
}

// Which of those that are not there to speak of: an id, which never comes back, before a name, which may.
const ShareKey& WorstMissing(const Namespace* ns, std::span<const ShareKey> keys) {
  const ShareKey* worst = nullptr;
  for (const ShareKey& key : keys) {
    if (Find(ns, key) != nullptr) continue;
    if (key.id != ShareId{}) return key;
    if (worst == nullptr) worst = &key;
  }
  return *worst;
}

Status NameTaken(std::string_view ns, std::string_view name) {
  return AlreadyExists("namespace '", ns, "' has a share '", name, "' already").Because("NAME_TAKEN");
}

Status OtherNamespace(ArenaId arena, const Namespace& ns) {
  return FailedPrecondition("arena ", Number(arena), " belongs to namespace '", ns.name(), "'")
      .Because("OTHER_NAMESPACE");
}

Status AnswerTooLarge(uint64_t bytes, size_t shares, size_t of, uint64_t bytes_max) {
  return ResourceExhausted("the first ", shares, " of ", of, " shares are described in ", bytes,
                           " bytes (an answer has at most ", bytes_max,
                           ", limits.frame_bytes_max): ask for fewer shares at once")
      .Because("ANSWER_TOO_LARGE");
}

// What the share waits for, and for whom: other users' processes are not told of.
Status FencePending(const Session& session, const Share& share) {
  const std::string& name = share.facts->name;
  const std::string& device = share.arena->device().uuid;
  const bool sees_maker = session.peer.uid == share.maker_uid;
  const std::string maker = sees_maker ? Concat(" (session ", Number(share.maker), ", process ", share.maker_process_id,
                                                ", user ", share.maker_uid, ")")
                                       : ", another user's process,";
  Status pending = NotFound("share '", name, "' is there, the work that makes its bytes has not ended: its maker",
                            maker, " has not said that its event on ", device, " has happened")
                       .Because("FENCE_PENDING")
                       .With("share", name)
                       .With("device", device)
                       .With("fence", "event");
  if (!sees_maker) return pending;
  return std::move(pending)
      .With("maker_session", std::to_string(Number(share.maker)))
      .With("maker_process_id", std::to_string(share.maker_process_id))
      .With("maker_uid", std::to_string(share.maker_uid));
}

}  // namespace

// Everything but the seal. REQUIRES: `name` is valid.
Status Broker::State::CheckPublish(const Session& session, const PublishCall& call, std::string_view name,
                                   uint64_t description_bytes) const {
  const Limits& limits = config.limits;
  const auto key = KeyOf(session, call.ns, Right::kWrite);
  if (!key.ok()) return key.status();
  const Arena* const arena = FindWritable(session, call.arena);
  if (arena == nullptr) return NoArena(call.arena);
  const bool stale = arena->generation() != call.arena_generation;
  if (stale && !Failpoint("arena_generation")) return NoArena(call.arena);
  const Namespace& ns = *arena->ns();
  if (FindNamespace(*key) != &ns) return OtherNamespace(call.arena, ns);
  AB_RETURN_IF_ERROR(arena->CheckRange(call.offset, call.size));
  if (!call.fence.done() &&
      (session.peer.events.empty() || call.channel != ChannelEndId{} || arena->kind() == HandleKind::kMemfd)) {
    return FailedPrecondition("arena ", Number(call.arena), ": no events are offered there; publish what is done")
        .Because("FENCE_NOT_OFFERED");
  }
  const Share* const old = call.channel == ChannelEndId{} ? ns.FindByName(name) : nullptr;
  if (old != nullptr && !call.replace) return NameTaken(ns.name(), name);
  // It was sent when nobody asked for these limits, and is not to be lost for them: a channel bounds it.
  if (call.from_direct) return Ok();
  const bool makes_room = old != nullptr && old->leases == 0;  // or will, when nobody holds it
  if (ns.shares().size() - (makes_room ? 1 : 0) >= limits.shares_per_namespace) {
    return AtLimit("TOO_MANY_SHARES", "shares_per_namespace", limits.shares_per_namespace);
  }
  const Account& has = *session.account;
  const bool own = makes_room && old->maker_uid == session.peer.uid;
  if (has.shares - (own ? 1 : 0) >= limits.shares_per_uid) {
    return AtLimit("TOO_MANY_SHARES", "shares_per_uid", limits.shares_per_uid);
  }
  const uint64_t room_made = own ? DescriptionBytes(*old) : 0;
  if (has.description_bytes - room_made + description_bytes <= limits.description_bytes_per_uid) return Ok();
  return AtLimit("TOO_MANY_DESCRIPTION_BYTES", "description_bytes_per_uid", limits.description_bytes_per_uid);
}

// Scans the arena's pages, so not under the lock.
Status Broker::State::SealForEver(SessionId session, const PublishCall& call, std::string_view name) {
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(mutex);
    const Session* const found = FindSession(session);
    if (found == nullptr) return NoSession();
    AB_RETURN_IF_ERROR(CheckPublish(*found, call, name, call.description.size() + call.note.size()));
    const Arena* const arena = FindArena(call.arena);
    if (arena->immutability == Immutability::kEnforced) return Ok();
    if (!arena->block()->MayBeEnforced()) {
      return FailedPrecondition("arena ", Number(call.arena), " is device memory, which cannot be sealed")
          .Because("CANNOT_BE_SEALED");
    }
    block = arena->block();
  }
  auto sealed = block->Seal();
  if (sealed.ok() && *sealed == Immutability::kByContract) sealed = block->Seal();
  if (!sealed.ok()) return sealed.status();
  {
    const MutexLock lock(mutex);
    Arena* const arena = FindArena(call.arena);
    if (arena != nullptr && *sealed == Immutability::kEnforced) MarkEnforced(*arena);
    if (arena != nullptr && arena->immutability != Immutability::kEnforced) arena->immutability = *sealed;
  }
  if (*sealed == Immutability::kEnforced) return Ok();
  return FailedPrecondition("arena ", Number(call.arena),
                            " cannot be sealed: somebody still maps it writable (a forked child counts too)")
      .Because("ARENA_STILL_WRITABLE");
}

Result<PublishedShare> Broker::Publish(SessionId session, PublishCall call) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  const bool sent = call.channel != ChannelEndId{};
  const bool unnamed = call.name.empty();
  const std::string name = unnamed && !sent ? InventName() : std::string(call.name);
  if (!unnamed) AB_RETURN_IF_ERROR(CheckName("the share's name", name, limits.name_bytes_max));
  if (call.sealed) AB_RETURN_IF_ERROR(state.SealForEver(session, call, name));

  auto facts = std::make_shared<ShareFacts>();
  facts->ns = std::string(NamespaceNameOf(call.ns));
  facts->name = name;
  facts->description = std::move(call.description);
  facts->unnamed = unnamed;
  auto share = std::make_unique<Share>();
  share->offset = call.offset;
  share->size = call.size;
  share->maker = session;
  share->born = Clock::now();
  share->note = std::move(call.note);

  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const uint64_t said = facts->description.size() + share->note.size();
  AB_RETURN_IF_ERROR(state.CheckPublish(*found, call, name, said));
  Arena& arena = *state.FindArena(call.arena);
  if (!arena.immutability.has_value()) {
    return FailedPrecondition("arena ", Number(call.arena), " is not sealed yet: say Mapped first")
        .Because("ARENA_NOT_SEALED");
  }
  Namespace& ns = *arena.ns();
  Channel* channel = nullptr;
  if (sent) {
    const auto end = state.EndOf(*found, call.channel, ChannelRole::kSender);
    if (!end.ok()) return end.status();
    channel = end->channel;
    if (channel->ns() != &ns) return OtherNamespace(call.arena, ns);
    const bool direct = channel->direct != nullptr && channel->direct->open && !call.from_direct;
    if (direct && channel->direct->pages->standing() > 0) return IsDirect(*channel);
    AB_RETURN_IF_ERROR(channel->CheckSend(call.from_direct));
    facts->name = channel->name();
    share->channel = channel->id();
    share->withdrawn = true;
  }
  Share* const old = sent ? nullptr : ns.FindByName(name);
  found->account->description_bytes += said;
  ++found->account->shares;
  state.heap.Add(kShareBytes + said);
  facts->id = ShareId{++state.last_share};
  facts->generation = ++state.last_generation;
  share->facts = std::move(facts);
  share->ns = &ns;
  share->arena = &arena;
  share->maker_uid = found->peer.uid;
  share->maker_process_id = found->peer.process_id;
  share->maker_client = found->client;
  share->fence = std::move(call.fence);
  state.Enter(*share);  // before the old one goes: who looks meanwhile finds one of the two
  if (old != nullptr) state.Withdraw(*old, found, "replaced");
  Share* const added = ns.Add(std::move(share));
  const bool ends_first = !sent && state.Limit(*added, call.lifetime);
  arena.Carve(added->offset, added);
  if (channel != nullptr) channel->Push(*added);
  if (channel != nullptr && channel->direct != nullptr && channel->direct->open) channel->direct->pages->AddCall();
  if (!added->fence.done()) {
    found->fenced.emplace(added->facts->id, added);
    added->fenced_by = found;
    ++state.pending_fences;
  }
  ++state.publishes_total;
  state.TellShare(EventKind::kPublish, found, *added, added->note);
  PublishedShare published{added->facts->id, added->facts->name, added->facts->generation, *arena.immutability, {}};
  if (ends_first) published.sweep_at = added->expires;
  return published;
}

LeasedShare Broker::State::Lease(Session& session, Share& share) {
  const LeaseId id{++last_lease};
  session.leases.emplace_hint(session.leases.end(), id, &share);
  ++session.uses[share.arena].leases;
  ++session.account->leases;
  heap.Add(kLeaseBytes);
  ++share.leases;
  ++leases;
  LeasedShare leased{id,
                     share.facts,
                     share.arena->Describe(share.offset, share.size),
                     share.arena->immutability.value_or(Immutability::kByContract),
                     {}};
  if (share.arena->opaque.empty()) return leased;
  leased.handle.opaque = share.arena->opaque;
  Give(session, *share.arena);
  return leased;
}

// REQUIRES: CheckFence says OK.
void Broker::State::TellFence(Session& session, Share& share, LeasedShare* leased) {
  if (share.fence.done()) return;
  leased->fence = share.fence;
  session.awaiting.insert(leased->lease);
  ++share.awaiting;
}

// Whether this session can wait for what the share's maker has to do yet.
Status Broker::State::CheckFence(const Session& session, const Share& share, bool final_only) const {
  if (share.fence.done()) return Ok();
  const Session* const maker = FindSession(share.maker);
  // What a client says of itself counts between processes of one user.
  const bool opens = maker != nullptr && maker->peer.uid == session.peer.uid && !session.peer.events.empty() &&
                     session.peer.events == maker->peer.events;
  if (opens && !final_only) return Ok();
  return FencePending(session, share);
}

Result<Share*> Broker::State::FindShare(const Session& session, std::string_view ns, const ShareKey& key) const {
  const auto place = KeyOf(session, ns, Right::kRead);
  if (!place.ok()) return place.status();
  Share* const share = Find(FindNamespace(*place), key);
  if (share == nullptr) return NoShare(ns, key, config.limits);
  return share;
}

void Broker::State::Undo(Session& session, const std::vector<LeasedShare>& leased) {
  for (const LeasedShare& one : leased) {
    TellRelease(session, one.lease);
    EndLease(session, one.lease);
  }
}

Result<AcquiredShares> Broker::Acquire(SessionId session, std::string_view ns, std::span<const ShareKey> keys,
                                       bool with_descriptor, bool final_only, std::string_view note,
                                       uint64_t bytes_max) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  AcquiredShares acquired;
  acquired.shares.reserve(keys.size());
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    const auto place = state.KeyOf(*found, ns, Right::kRead);
    if (!place.ok()) return place.status();
    if (found->leases.size() + keys.size() > limits.leases_per_session) {
      return AtLimit("TOO_MANY_LEASES", "leases_per_session", limits.leases_per_session);
    }
    if (found->account->leases + keys.size() > limits.leases_per_uid) {
      return AtLimit("TOO_MANY_LEASES", "leases_per_uid", limits.leases_per_uid);
    }
    Namespace* const owner = state.FindNamespace(*place);
    std::vector<Share*> shares;
    shares.reserve(keys.size());
    uint64_t bytes = 0;
    for (const ShareKey& key : keys) {
      shares.push_back(Find(owner, key));
      if (shares.back() == nullptr) return NoShare(ns, WorstMissing(owner, keys), limits);
      const ShareFacts& facts = *shares.back()->facts;
      bytes += facts.description.size() + facts.ns.size() + facts.name.size();
      if (bytes > bytes_max) return AnswerTooLarge(bytes, shares.size(), keys.size(), bytes_max);
      const Arena& arena = *shares.back()->arena;
      if (!found->peer.MayOpen(arena.kind(), arena.device())) {
        return found->peer.CannotOpen(Concat("share '", shares.back()->facts->name, "'"), arena.kind(), arena.device());
      }
      AB_RETURN_IF_ERROR(state.CheckFence(*found, *shares.back(), final_only));
    }
    Arena* lacking = nullptr;
    for (Share* const share : shares) {
      state.Enter(*share);  // what was published before there was a catalogue
      acquired.shares.push_back(state.Lease(*found, *share));
      state.TellFence(*found, *share, &acquired.shares.back());
      state.NoteReader(*found, *share, note);
      state.TellShare(EventKind::kAcquire, found, *share, note);
      if (lacking == nullptr && !share->arena->readers.contains(found)) lacking = share->arena;
    }
    state.acquires_total += keys.size();
    if (!with_descriptor || lacking == nullptr) return acquired;
    state.Give(*found, *lacking);
    acquired.descriptor = lacking->Describe();
    block = lacking->block();
  }
  Status brought = state.Bring(session, block, &acquired);
  if (brought.ok()) return acquired;
  const MutexLock lock(state.mutex);
  if (Session* const found = state.FindSession(session); found != nullptr) state.Undo(*found, acquired.shares);
  return brought;
}

Status Broker::State::Bring(SessionId session, const std::shared_ptr<MemoryBlock>& block, AcquiredShares* acquired) {
  auto exported = block->Export(Access::kRead);
  if (exported.ok()) {
    acquired->descriptor->descriptor = std::move(exported->descriptor);
    acquired->descriptor->opaque = std::move(exported->opaque);
    return Ok();
  }
  const MutexLock lock(mutex);
  Session* const found = FindSession(session);
  Arena* const arena = FindArena(ArenaId{acquired->descriptor->arena});
  if (found != nullptr && arena != nullptr) Forget(*found, *arena);
  return exported.status();
}

Result<uint32_t> Broker::Withdraw(SessionId session, std::string_view ns, std::span<const ShareKey> keys) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const auto place = state.KeyOf(*found, ns, Right::kWrite);
  if (!place.ok()) return place.status();
  return state.WithdrawFrom(*place, keys, found);
}

Result<uint32_t> Broker::State::WithdrawFrom(const NamespaceKey& place, std::span<const ShareKey> keys,
                                             const Session* who) {
  const Namespace* const owner = FindNamespace(place);
  const ShareKey* missing = nullptr;
  uint32_t withdrawn = 0;
  for (const ShareKey& key : keys) {
    if (Share* const share = Find(owner, key); share != nullptr) {
      Withdraw(*share, who, who == nullptr ? "administration" : "withdrawn");
      ++withdrawn;
    } else if (missing == nullptr) {
      missing = &key;
    }
  }
  if (missing != nullptr) return NoShare(place.name, *missing, config.limits);
  return withdrawn;
}

}  // namespace arraybridge
