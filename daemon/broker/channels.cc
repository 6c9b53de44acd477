// The Broker's verbs on channels. Sending is Publish (shares.cc) with an end of a channel.
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

Status NotOpen() { return NotFound("this end of a channel is not open").Because("CHANNEL_NOT_OPEN"); }

}  // namespace

Result<Channel*> Broker::State::MakeChannel(Namespace& ns, std::string_view name) {
  if (ns.channels.size() >= config.limits.channels_per_namespace) {
    return AtLimit("TOO_MANY_CHANNELS", "channels_per_namespace", config.limits.channels_per_namespace);
  }
  const ChannelId id{++last_channel};
  auto fresh = std::make_unique<Channel>(id, ns, ns.queued_shares, std::string(name));
  Channel* const made = fresh.get();
  channels.emplace(id, made);
  ns.channels.emplace(std::string(name), std::move(fresh));
  return made;
}

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
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const auto key = state.KeyOf(*found, ns, Right::kWrite);  // who receives takes away
  if (!key.ok()) return key.status();
  if (found->ends.size() >= limits.channel_ends_per_session) {
    return AtLimit("TOO_MANY_CHANNEL_ENDS", "channel_ends_per_session", limits.channel_ends_per_session);
  }
  if (found->account->channel_ends >= limits.channel_ends_per_uid) {
    return AtLimit("TOO_MANY_CHANNEL_ENDS", "channel_ends_per_uid", limits.channel_ends_per_uid);
  }
  Namespace* owner = state.FindNamespace(*key);
  if (owner == nullptr) {
    const auto made = state.MakeNamespace(*found, *key);
    if (!made.ok()) return made.status();
    owner = *made;
  }
  const auto known = owner->channels.find(call.name);
  Channel* channel = known == owner->channels.end() ? nullptr : known->second.get();
  if (channel == nullptr) {
    const auto made = state.MakeChannel(*owner, call.name);
    if (!made.ok()) return made.status();
    channel = *made;
  }
  if (channel->direct != nullptr) return IsDirect(*channel);
  if (channel->members().size() >= limits.members_per_channel) {
    return AtLimit("TOO_MANY_MEMBERS", "members_per_channel", limits.members_per_channel);
  }
  AB_RETURN_IF_ERROR(channel->Agree(call.capacity));
  const ChannelEndId end{++state.last_channel_end};
  channel->Open({session, end, call.role});
  if (channel->lingers_until) state.lingering.erase({*std::exchange(channel->lingers_until, std::nullopt), channel});
  found->ends.emplace(end, ChannelEnd{channel, call.role});
  ++found->account->channel_ends;
  return OpenedChannel{end, channel->id(), channel->capacity()};
}

Result<ChannelId> Broker::CloseChannel(SessionId session, ChannelEndId end, bool complete) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const auto known = found->ends.find(end);
  if (known == found->ends.end()) return NotOpen();
  if (known->second.channel->direct != nullptr) return IsDirect(*known->second.channel);
  const auto open = found->ends.extract(known);
  const ChannelId channel = open.mapped().channel->id();
  state.Close(*found, end, open.mapped(), complete, Clock::now());
  return channel;
}

Result<ChannelEnd> Broker::State::EndOf(const Session& session, ChannelEndId id, ChannelRole role) const {
  const auto found = session.ends.find(id);
  if (found == session.ends.end()) return NotOpen();
  if (found->second.role == role) return found->second;
  return FailedPrecondition("this end of channel '", found->second.channel->name(), "' ",
                            role == ChannelRole::kSender ? "receives" : "sends")
      .Because("WRONG_END");
}

Result<ChannelId> Broker::ChannelOf(SessionId session, ChannelEndId end, ChannelRole role) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const auto open = state.EndOf(*found, end, role);
  if (!open.ok()) return open.status();
  return open->channel->id();
}

Result<AcquiredShares> Broker::Receive(SessionId session, ChannelEndId id, bool with_descriptor) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  AcquiredShares acquired;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    const auto end = state.EndOf(*found, id, ChannelRole::kReceiver);
    if (!end.ok()) return end.status();
    Channel& channel = *end->channel;
    if (channel.queued() == 0 && channel.direct != nullptr && channel.direct->open) return IsDirect(channel);
    AB_RETURN_IF_ERROR(channel.CheckReceive());
    if (found->leases.size() >= limits.leases_per_session) {
      return AtLimit("TOO_MANY_LEASES", "leases_per_session", limits.leases_per_session);
    }
    if (found->account->leases >= limits.leases_per_uid) {
      return AtLimit("TOO_MANY_LEASES", "leases_per_uid", limits.leases_per_uid);
    }
    Share& share = channel.front();
    Arena& arena = *share.arena;
    if (!found->peer.MayOpen(arena.kind(), arena.device())) {
      return found->peer.CannotOpen(Concat("what channel '", channel.name(), "' brings next"), arena.kind(),
                                    arena.device());
    }
    acquired.shares.push_back(state.Lease(*found, share));
    channel.Pop();
    ++found->ends.at(id).received;
    ++state.acquires_total;
    state.TellShare(EventKind::kAcquire, found, share, {});
    if (!with_descriptor || arena.readers.contains(found)) return acquired;
    state.Give(*found, arena);
    acquired.descriptor = arena.Describe();
    block = arena.block();
  }
  Status brought = state.Bring(session, block, &acquired);
  if (brought.ok()) return acquired;
  const uint64_t lease = Number(acquired.shares.front().lease);
  PutBack(session, {&lease, 1});
  return brought;
}

std::vector<ChannelId> Broker::PutBack(SessionId session, std::span<const uint64_t> leases) {
  State& state = *state_;
  std::vector<ChannelId> put;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return put;
  for (const uint64_t lease : leases) {
    const auto leased = found->leases.find(LeaseId{lease});
    if (leased == found->leases.end()) continue;
    const auto channel = state.channels.find(leased->second->channel);
    // Not of a channel, or nobody is there who could receive it.
    if (channel == state.channels.end() || channel->second->receivers() == 0) continue;
    channel->second->PushFront(*leased->second);
    for (const Channel::Member& member : channel->second->members()) {
      if (member.session == session && member.role == ChannelRole::kReceiver) --found->ends.at(member.end).received;
    }
    state.TellRelease(*found, LeaseId{lease});
    state.EndLease(*found, LeaseId{lease});
    put.push_back(channel->first);
  }
  return put;
}

// The channel may be gone after this.
void Broker::State::Close(Session& session, ChannelEndId id, const ChannelEnd& end, bool complete,
                          Clock::time_point now) {
  Channel& channel = *end.channel;
  --session.account->channel_ends;
  channel.direct = nullptr;  // of a session that ends: it was ended before
  channel.Close(id, complete);
  if (end.role == ChannelRole::kReceiver && channel.receivers() == 0) DropQueued(channel);
  if (!channel.members().empty()) return;
  if (!channel.awaits_first_receiver()) return DropChannel(channel);
  channel.lingers_until = now + PolicyOf(channel.ns()->name()).orphan_grace;
  lingering.emplace(*channel.lingers_until, &channel);
  sweep_wanted.store(true);
}

// A few at once, the rest in slices.
void Broker::State::DropQueued(Channel& channel) {
  constexpr int kAtOnce = 8;
  for (int i = 0; i < kAtOnce && channel.queued() > 0; ++i) {
    Share& share = channel.front();
    channel.Pop();
    Settle(share);
  }
  if (channel.queued() == 0) return;
  unqueued.push_back(channel.TakeQueue());
  sweep_wanted.store(true);
}

void Broker::State::DropChannel(Channel& channel) {
  DropQueued(channel);
  sweep_wanted.store(true);  // of a namespace that may be unused now
  if (channel.lingers_until) lingering.erase({*channel.lingers_until, &channel});
  channels.erase(channel.id());
  auto& its = channel.ns()->channels;
  its.erase(its.find(channel.name()));
}

}  // namespace arraybridge
