// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on channels. Sending is Publish (publish.cc) with an end of a channel.
#include <algorithm>
#include <utility>

#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {
namespace {

// The terms that an end states, with those that its mode implies.
Result<ChannelTerms> CheckTerms(ChannelTerms terms, const Limits& limits) {
  const bool latest = terms.mode == ChannelMode::kLatest;
  if (std::max(terms.capacity, terms.replayed()) > limits.channel_capacity_max) {
    return InvalidArgument("a channel of ", std::max(terms.capacity, terms.replayed()),
                           " shares: limits.channel_capacity_max is ", limits.channel_capacity_max)
        .Because("CHANNEL_CAPACITY");
  }
  if (terms.mode != ChannelMode::kBroadcast && (terms.drops() || terms.replayed() > (latest ? 1 : 0))) {
    return InvalidArgument("drop_oldest and replay are for channels of mode broadcast").Because("CHANNEL_MODE");
  }
  if (!latest) return terms;
  if (terms.capacity > 1) {
    return InvalidArgument("a channel of mode latest keeps 1 share, not ", terms.capacity).Because("CHANNEL_CAPACITY");
  }
  return ChannelTerms{.capacity = 1, .mode = terms.mode, .drop_oldest = true, .replay = 1};
}

}  // namespace

Result<OpenedChannel> Broker::OpenChannel(SessionId session, const OpenChannelCall& call) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  const std::string_view ns = NamespaceNameOf(call.ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", ns, limits.name_bytes_max));
  AB_RETURN_IF_ERROR(CheckName("the channel's name", call.name, limits.name_bytes_max));
  AB_ASSIGN_OR_RETURN(const auto terms, CheckTerms(call.terms, limits));
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  const auto key = state.rights.KeyOf(found->peer, ns, Right::kWrite);  // a receiver removes shares
  if (!key.ok()) return key.status();
  // A request that the previous daemon served, and that is repeated.
  for (const auto& [id, end] : found->ends) {
    if (call.request == 0 || end.request != call.request) continue;
    return OpenedChannel{id, end.channel->id(), end.channel->capacity(), end.seen, end.channel->mode()};
  }
  if (found->ends.size() >= limits.channel_ends_per_session) {
    return AtLimit("TOO_MANY_CHANNEL_ENDS", "channel_ends_per_session", limits.channel_ends_per_session);
  }
  AB_RETURN_IF_ERROR(state.accounts.CheckObjects(*found, "TOO_MANY_CHANNEL_ENDS", object_bytes::kChannelEnd));
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(ns.size() + call.name.size() + call.run.size()));
  AB_ASSIGN_OR_RETURN(const auto owner, state.namespaces.FindOrMake(*key, found->peer.uid));
  AB_ASSIGN_OR_RETURN(const auto known, state.channels.FindOrMake(*owner, call.name));
  Channel& channel = *known;
  if (channel.direct != nullptr) return RefuseAsDirect(channel);
  if (channel.members().size() >= limits.members_per_channel) {
    return AtLimit("TOO_MANY_MEMBERS", "members_per_channel", limits.members_per_channel);
  }
  const std::string_view role = call.role == ChannelRole::kSender ? "sender" : "receiver";
  AB_RETURN_IF_ERROR(channel.Agree(terms, NameOfEnd(role, found->client.get(), found->peer.process_id)));
  const ChannelEndId end = state.channels.Open(*found, channel, call);
  return OpenedChannel{end, channel.id(), channel.capacity(), found->ends.at(end).seen, channel.mode()};
}

Result<ChannelId> Broker::CloseChannel(SessionId session, ChannelEndId end, EndedHow how) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  const auto known = found->ends.find(end);
  if (known == found->ends.end()) return ChannelNotOpen();
  if (known->second.channel->direct != nullptr) return RefuseAsDirect(*known->second.channel);
  const auto open = found->ends.extract(known);
  const ChannelId channel = open.mapped().channel->id();
  state.channels.Close(*found, end, open.mapped(), how, Clock::now());
  return channel;
}

Result<ChannelPlace> Broker::ChannelOf(SessionId session, ChannelEndId end, ChannelRole role) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto open, Channels::EndOf(*found, end, role));
  return ChannelPlace{open.channel->id(),
                      role == ChannelRole::kReceiver && open.channel->mode() != ChannelMode::kQueue};
}

std::vector<ChannelEndId> Broker::ReceiversOf(ChannelId id) const {
  std::vector<ChannelEndId> receivers;
  const MutexLock lock(state_->mutex);
  const Channel* const channel = state_->channels.Find(id);
  if (channel == nullptr) return receivers;
  for (const Channel::Member& member : channel->members()) {
    if (member.role == ChannelRole::kReceiver) receivers.push_back(member.end);
  }
  return receivers;
}

Result<DrainedChannel> Broker::DrainChannel(SessionId session, std::string_view ns, std::string_view name,
                                            bool remove) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, ns, Right::kWrite));
  Namespace* const owner = state.namespaces.Find(key);
  Channel* const known = owner == nullptr ? nullptr : Channels::FindIn(*owner, name);
  if (known == nullptr) {
    return NotFound("namespace '", NamespaceNameOf(ns), "' has no channel '", name, "'").Because("CHANNEL_NOT_FOUND");
  }
  Channel& channel = *known;
  if (remove && !channel.members().empty()) {
    return FailedPrecondition("channel '", name, "' has ", channel.senders(), " senders and ", channel.receivers(),
                              " receivers: close them first, or drain it and leave it")
        .Because("CHANNEL_IN_USE");
  }
  if (channel.direct != nullptr) return RefuseAsDirect(channel);
  const ChannelId id = channel.id();
  return DrainedChannel{id, static_cast<uint32_t>(state.channels.Drain(channel))};
}

Status Broker::NoticeTo(SessionId session, ChannelEndId end, uint64_t seen) const {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  const auto open = found->ends.find(end);
  return open == found->ends.end() ? ChannelNotOpen() : state.channels.NoticeTo(*open->second.channel, end, seen);
}

Result<AcquiredShares> Broker::Receive(SessionId session, ChannelEndId id, uint64_t seen, bool with_descriptor,
                                       uint64_t request) {
  State& state = *state_;
  AcquiredShares acquired;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
    AB_ASSIGN_OR_RETURN(const auto end, Channels::EndOf(*found, id, ChannelRole::kReceiver));
    Channel& channel = *end.channel;
    AB_RETURN_IF_ERROR(state.channels.NoticeTo(channel, id, seen));
    if (channel.queued() == 0 && channel.direct != nullptr && channel.direct->open) return RefuseAsDirect(channel);
    AB_ASSIGN_OR_RETURN(const auto next, channel.Next(id));
    AB_RETURN_IF_ERROR(state.leases.CheckRoom(*found, 1));
    AB_RETURN_IF_ERROR(state.journal.CheckRoom());
    Share& share = *next;
    Arena& arena = *share.arena;
    if (!found->peer.MayOpen(arena.kind(), arena.device())) {
      const Status cannot = found->peer.CannotOpen(Concat("the next share of channel '", channel.name(), "'"),
                                                   arena.kind(), arena.device());
      // In a queue it stays for another receiver; a broadcast does not wait for this one.
      if (!channel.broadcasts()) return cannot;
      channel.Miss(id);
      state.journal.Put(found->ends.at(id), id);
      state.channels.LetPass(channel);
      return cannot;
    }
    acquired.shares.push_back(state.leases.Grant(*found, share, request, id));
    channel.Receive(id);
    share.unnoted = share.unnoted || share.queued == 0;
    ChannelEnd& its = found->ends.at(id);
    its.NoteReceived(acquired.shares.back().lease);
    state.journal.Put(its, id);
    state.channels.LetPass(channel);
    ++state.shares.acquires_total;
    state.events.Emit(EventKind::kAcquire, found, share, {});
    if (!with_descriptor || arena.readers.contains(found)) return acquired;
    state.arenas.AddReader(*found, arena);
    acquired.descriptor = arena.Describe();
    block = arena.block();
  }
  Status exported = state.ExportDescriptor(session, block, &acquired);
  if (exported.ok()) return acquired;
  const Received undelivered{acquired.shares.front().lease, id};
  PutBack(session, {&undelivered, 1});
  return exported;
}

// Each of these steps leaves records of a share that is either received, by its lease, or queued.
Channel* Broker::State::PutBack(Session& session, const Received& undelivered) {
  const auto leased = session.leases.find(undelivered.lease);
  if (leased == session.leases.end()) return nullptr;
  Share& share = *leased->second;
  Channel* const channel = channels.Find(share.channel);
  // Not a share of a channel, or the channel has no receiver any more.
  if (channel == nullptr || channel->receivers() == 0) return nullptr;
  channel->PutBack(undelivered.receiver, share, share.facts->sent->sequence);
  if (share.queued > 0) journal.Put(share);
  const auto end = session.ends.find(undelivered.receiver);
  if (end != session.ends.end()) {
    --end->second.received;
    --end->second.shares;
    if (channel->broadcasts()) journal.Put(end->second, end->first);
  }
  events.EmitRelease(session, undelivered.lease);
  leases.End(session, undelivered.lease);
  if (end != session.ends.end() && !channel->broadcasts()) journal.Put(end->second, end->first);
  return channel;
}

std::vector<ChannelId> Broker::PutBack(SessionId session, std::span<const Received> undelivered) {
  State& state = *state_;
  std::vector<ChannelId> put;
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return put;
  for (const Received& each : undelivered) {
    if (const Channel* const channel = state.PutBack(*found, each); channel != nullptr) put.push_back(channel->id());
  }
  return put;
}

}  // namespace arraybridge::daemon
