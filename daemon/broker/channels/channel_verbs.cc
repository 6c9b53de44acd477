// The Broker's verbs on channels. Sending is Publish (publish.cc) with an end of a channel.
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {

Result<OpenedChannel> Broker::OpenChannel(SessionId session, const OpenChannelCall& call) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  const std::string_view ns = NamespaceNameOf(call.ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", ns, limits.name_bytes_max));
  AB_RETURN_IF_ERROR(CheckName("the channel's name", call.name, limits.name_bytes_max));
  if (call.capacity > limits.channel_capacity_max) {
    return InvalidArgument("a channel of ", call.capacity, " shares: limits.channel_capacity_max is ",
                           limits.channel_capacity_max)
        .Because("CHANNEL_CAPACITY");
  }
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return NoSession();
  const auto key = state.rights.KeyOf(found->peer, ns, Right::kWrite);  // a receiver removes shares
  if (!key.ok()) return key.status();
  AB_RETURN_IF_ERROR(state.channels.CheckRoom(*found));
  const auto owner = state.namespaces.FindOrMake(*key, found->peer.uid);
  if (!owner.ok()) return owner.status();
  const auto known = state.channels.FindOrMake(**owner, call.name);
  if (!known.ok()) return known.status();
  Channel& channel = **known;
  if (channel.direct != nullptr) return RefuseAsDirect(channel);
  if (channel.members().size() >= limits.members_per_channel) {
    return AtLimit("TOO_MANY_MEMBERS", "members_per_channel", limits.members_per_channel);
  }
  AB_RETURN_IF_ERROR(channel.Agree(call.capacity));
  uint64_t seen = 0;
  const ChannelEndId end = state.channels.Open(*found, channel, call.role, &seen);
  return OpenedChannel{end, channel.id(), channel.capacity(), seen};
}

Result<ChannelId> Broker::CloseChannel(SessionId session, ChannelEndId end, EndedHow how) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return NoSession();
  const auto known = found->ends.find(end);
  if (known == found->ends.end()) return ChannelNotOpen();
  if (known->second.channel->direct != nullptr) return RefuseAsDirect(*known->second.channel);
  const auto open = found->ends.extract(known);
  const ChannelId channel = open.mapped().channel->id();
  state.channels.Close(*found, end, open.mapped(), how, Clock::now());
  return channel;
}

Result<ChannelId> Broker::ChannelOf(SessionId session, ChannelEndId end, ChannelRole role) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  if (found == nullptr) return NoSession();
  const auto open = Channels::EndOf(*found, end, role);
  if (!open.ok()) return open.status();
  return open->channel->id();
}

Status Broker::NoticeTo(SessionId session, ChannelEndId end, uint64_t seen) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  if (found == nullptr) return NoSession();
  const auto open = found->ends.find(end);
  return open == found->ends.end() ? ChannelNotOpen() : open->second.channel->NoticeTo(open->second.role, seen);
}

Result<AcquiredShares> Broker::Receive(SessionId session, ChannelEndId id, uint64_t seen, bool with_descriptor) {
  State& state = *state_;
  AcquiredShares acquired;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.sessions.Find(session);
    if (found == nullptr) return NoSession();
    const auto end = Channels::EndOf(*found, id, ChannelRole::kReceiver);
    if (!end.ok()) return end.status();
    Channel& channel = *end->channel;
    AB_RETURN_IF_ERROR(channel.NoticeTo(ChannelRole::kReceiver, seen));
    if (channel.queued() == 0 && channel.direct != nullptr && channel.direct->open) return RefuseAsDirect(channel);
    AB_RETURN_IF_ERROR(channel.CheckReceive());
    AB_RETURN_IF_ERROR(state.leases.CheckRoom(*found, 1));
    Share& share = channel.front();
    Arena& arena = *share.arena;
    if (!found->peer.MayOpen(arena.kind(), arena.device())) {
      return found->peer.CannotOpen(Concat("the next share of channel '", channel.name(), "'"), arena.kind(),
                                    arena.device());
    }
    acquired.shares.push_back(state.leases.Grant(*found, share));
    channel.Pop();
    ChannelEnd& its = found->ends.at(id);
    ++its.received;
    ++its.shares;
    ++state.shares.acquires_total;
    state.events.Emit(EventKind::kAcquire, found, share, {});
    if (!with_descriptor || arena.readers.contains(found)) return acquired;
    state.arenas.AddReader(*found, arena);
    acquired.descriptor = arena.Describe();
    block = arena.block();
  }
  Status exported = state.ExportDescriptor(session, block, &acquired);
  if (exported.ok()) return acquired;
  const uint64_t lease = Number(acquired.shares.front().lease);
  PutBack(session, {&lease, 1});
  return exported;
}

std::vector<ChannelId> Broker::PutBack(SessionId session, std::span<const uint64_t> leases) {
  State& state = *state_;
  std::vector<ChannelId> put;
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return put;
  for (const uint64_t lease : leases) {
    const auto leased = found->leases.find(LeaseId{lease});
    if (leased == found->leases.end()) continue;
    Channel* const channel = state.channels.Find(leased->second->channel);
    // Not a share of a channel, or the channel has no receiver any more.
    if (channel == nullptr || channel->receivers() == 0) continue;
    channel->PushFront(*leased->second);
    for (const Channel::Member& member : channel->members()) {
      if (member.session != session || member.role != ChannelRole::kReceiver) continue;
      ChannelEnd& its = found->ends.at(member.end);
      --its.received;
      --its.shares;
    }
    state.events.EmitRelease(*found, LeaseId{lease});
    state.leases.End(*found, LeaseId{lease});
    put.push_back(channel->id());
  }
  return put;
}

}  // namespace arraybridge
