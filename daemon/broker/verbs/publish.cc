// SPDX-License-Identifier: Apache-2.0
// The Broker's verb that publishes a range of an arena.
#include <array>
#include <cstdio>
#include <utility>

#include "daemon/broker/verbs/state.h"
#include "proto/boundary/boot_time.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

std::string InventName() {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "unnamed-%016llx",
                static_cast<unsigned long long>(RandomBytes<uint64_t>()));  // NOLINT(google-runtime-int): printf's type
  return name.data();
}

Status NameTaken(std::string_view ns, std::string_view name) {
  return AlreadyExists("namespace '", ns, "' has a share '", name, "' already").Because("NAME_TAKEN");
}

Status OtherNamespace(ArenaId arena, const Namespace& ns) {
  return FailedPrecondition("arena ", Number(arena), " belongs to namespace '", ns.name(), "'")
      .Because("OTHER_NAMESPACE");
}

}  // namespace

Status Broker::State::CheckRange(const Session& session, const PublishCall& call, const Arena& arena) const {
  if (call.source) return forwards.Find(session, call, arena).status();
  return arena.CheckRange(call.offset, call.size);
}

// Checks everything but the seal. REQUIRES: `name` is valid.
Status Broker::State::CheckPublish(const Session& session, const PublishCall& call, std::string_view name,
                                   uint64_t description_bytes) const {
  const Limits& limits = config.limits;
  AB_ASSIGN_OR_RETURN(const auto key, rights.KeyOf(session.peer, call.ns, Right::kWrite));
  const Arena* const arena = call.source ? arenas.Find(call.arena) : arenas.FindWritable(session, call.arena);
  const bool stale = arena != nullptr && arena->generation() != call.arena_generation;
  const bool gone = arena == nullptr || (stale && !Failpoint("arena_generation"));
  if (gone && !call.source) return NoArena(call.arena);
  // One refusal, because the session may not know the arenas of other namespaces.
  if (gone || (call.source && namespaces.Find(key) != arena->ns())) {
    return NotForwarded("their arena is gone, or belongs to another namespace");
  }
  const Namespace& ns = *arena->ns();
  if (namespaces.Find(key) != &ns) return OtherNamespace(call.arena, ns);
  AB_RETURN_IF_ERROR(CheckRange(session, call, *arena));
  if (!call.fence.done() &&
      (session.peer.events.empty() || call.channel != ChannelEndId{} || arena->kind() == HandleKind::kMemfd)) {
    return FailedPrecondition("arena ", Number(call.arena),
                              " cannot be published with an event: publish after the work has ended")
        .Because("FENCE_NOT_OFFERED");
  }
  const Share* const old = call.channel == ChannelEndId{} ? ns.FindByName(name) : nullptr;
  if (old != nullptr && !call.replace) return NameTaken(ns.name(), name);
  // The share was sent before these limits applied and must not be lost. The channel's capacity bounds such shares.
  if (call.from_direct) return Ok();
  // Or will, once no session holds it.
  const bool makes_room = old != nullptr && old->leases == 0 && old->forwards == 0 && !call.source;
  if (ns.shares().size() - (makes_room ? 1 : 0) >= limits.shares_per_namespace) {
    return AtLimit("TOO_MANY_SHARES", "shares_per_namespace", limits.shares_per_namespace);
  }
  const bool own = makes_room && old->maker_uid == session.peer.uid;
  return accounts.CheckObjects(session, "TOO_MANY_SHARES", object_bytes::kShare + description_bytes,
                               own ? object_bytes::kShare + DescriptionBytes(*old) : 0);
}

// Scans the arena's pages, so it runs without the lock.
Status Broker::State::SealForEver(SessionId session, const PublishCall& call, std::string_view name) {
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(mutex);
    const Session* const found = sessions.Find(session);
    if (found == nullptr) return NoSession();
    AB_RETURN_IF_ERROR(CheckPublish(*found, call, name, call.description.size() + call.note.size()));
    const Arena* const arena = arenas.Find(call.arena);
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
    Arena* const arena = arenas.Find(call.arena);
    if (arena != nullptr && *sealed == Immutability::kEnforced) Arenas::MarkEnforced(*arena);
    if (arena != nullptr && arena->immutability != Immutability::kEnforced) arena->immutability = *sealed;
  }
  if (*sealed == Immutability::kEnforced) return Ok();
  return FailedPrecondition("arena ", Number(call.arena),
                            " cannot be sealed: a process still maps it writable (a forked child counts too)")
      .Because("ARENA_STILL_WRITABLE");
}

bool Broker::State::HasPassed(const Session& sender, const PublishCall& call) {
  const auto end = sender.ends.find(call.channel);
  if (end == sender.ends.end() || end->second.channel->direct == nullptr) return false;
  const Channel& channel = *end->second.channel;
  return channel.direct->pages->SequenceOf(call.entry) < channel.next_sequence();
}

// Describes a share that is sent now. The channel does not see the entries of its direct channel, and counts them here.
SentFacts Broker::State::SentBy(const Session& sender, Channel& channel, const PublishCall& call) const {
  if (const auto& direct = channel.direct; direct != nullptr && direct->open) {
    const uint64_t before = call.from_direct ? call.entry - 1 : direct->pages->counted().sent;
    channel.PassedDirectly(direct->pages->SequenceOf(before), 0);
  }
  return {.sequence = channel.next_sequence(),
          .stream = channel.stream(),
          .time_ns = call.from_direct ? call.sent_time_ns : BootTime(),
          .process_id = sender.peer.process_id,
          .client = sender.client};
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
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  if (auto before = found->FindPublished(call.request)) return *std::move(before);
  // An entry that the previous daemon published, when it ended the direct channel.
  if (call.from_direct && state.HasPassed(*found, call)) return PublishedShare{};
  const uint64_t text_bytes = facts->description.size() + share->note.size();
  AB_RETURN_IF_ERROR(state.CheckPublish(*found, call, name, text_bytes));
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(text_bytes + name.size()));
  Arena& arena = *state.arenas.Find(call.arena);
  if (!arena.immutability.has_value()) {
    const std::string& why = arena.not_sealed.ok() ? "call Mapped first" : arena.not_sealed.message();
    return FailedPrecondition("arena ", Number(call.arena), " is not sealed: ", why).Because("ARENA_NOT_SEALED");
  }
  Namespace& ns = *arena.ns();
  Channel* channel = nullptr;
  if (sent) {
    AB_ASSIGN_OR_RETURN(const auto end, Channels::EndOf(*found, call.channel, ChannelRole::kSender));
    channel = end.channel;
    if (channel->ns() != &ns) return OtherNamespace(call.arena, ns);
    const bool direct = channel->direct != nullptr && channel->direct->open && !call.from_direct;
    if (direct && channel->direct->pages->standing() > 0) return RefuseAsDirect(*channel);
    if (!call.from_direct) AB_RETURN_IF_ERROR(channel->NoticeTo(call.channel, call.seen_notice));
    AB_RETURN_IF_ERROR(channel->CheckSend(call.from_direct));
    facts->name = channel->name();
    facts->sent = std::make_unique<const SentFacts>(state.SentBy(*found, *channel, call));
    share->channel = channel->id();
    share->sent_by = call.channel;
    share->withdrawn = true;
  }
  Share* const old = sent ? nullptr : ns.FindByName(name);
  found->account->description_bytes += text_bytes;
  ++found->account->shares;
  facts->id = state.shares.NextId();
  facts->generation = state.shares.NextGeneration();
  share->facts = std::move(facts);
  share->ns = &ns;
  share->arena = &arena;
  share->maker_uid = found->peer.uid;
  share->maker_process_id = found->peer.process_id;
  share->maker_client = found->client;
  share->request = call.request;
  if (!sent) state.shares.SetLifetime(*share, call.lifetime);
  share->fence = std::move(call.fence);
  if (call.source) {
    state.forwards.Add(*found, *share, *state.forwards.Find(*found, call, arena), *call.source);
  } else {
    arena.Carve(share->offset, share.get());
  }
  if (channel == nullptr) state.journal.Put(*share);
  static_cast<void>(Failpoint("share_recorded"));
  state.hazards.Insert(*share);  // before the old share goes, so that a reader always finds one of the two
  static_cast<void>(Failpoint("share_inserted"));
  if (old != nullptr) state.shares.Withdraw(*old, found, "replaced");
  share->unread = !sent && !unnamed;
  if (share->unread) ++state.shares.unread;
  Share* const added = ns.Add(std::move(share));
  if (!sent) state.EndClaim(*found, ns, name);
  const bool ends_first = state.shares.Limit(*added);
  if (channel != nullptr) channel->Push(*added);
  if (channel != nullptr) {
    state.journal.Put(*added);
    ChannelEnd& end = found->ends.at(call.channel);
    end.NoteSent(added->facts->sent->sequence, call.request);
    state.journal.Put(end, call.channel);
  }
  const bool by_call = channel != nullptr && channel->direct != nullptr && channel->direct->open && !call.from_direct;
  if (by_call) channel->direct->pages->AddCall();
  state.leases.AddFence(*found, *added);
  ++state.shares.publishes_total;
  state.events.Emit(EventKind::kPublish, found, *added, added->note);
  PublishedShare published{added->facts->id, added->facts->name, added->facts->generation, *arena.immutability, {}};
  if (ends_first) published.sweep_at = added->expires;
  static_cast<void>(Failpoint("share_published"));
  if (channel != nullptr) state.channels.LetPass(*channel);  // without a receiver the share ends here
  return published;
}

}  // namespace arraybridge::daemon
