// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/channels.h"

#include <memory>
#include <string>

#include "daemon/at_limit.h"
#include "daemon/broker/objects/runs/run.h"

namespace arraybridge::daemon {

Status ChannelNotOpen() { return NotFound("this end of a channel is not open").Because("CHANNEL_NOT_OPEN"); }

Channel* Channels::Find(ChannelId id) const {
  const auto found = all_.find(id);
  return found == all_.end() ? nullptr : found->second;
}

Channel* Channels::FindIn(const Namespace& ns, std::string_view name) {
  const auto found = ns.channels.find(name);
  return found == ns.channels.end() ? nullptr : found->second.get();
}

Result<Channel*> Channels::FindOrMake(Namespace& ns, std::string_view name) {
  if (Channel* const known = FindIn(ns, name); known != nullptr) return known;
  if (ns.channels.size() >= config_.limits.channels_per_namespace) {
    return AtLimit("TOO_MANY_CHANNELS", "channels_per_namespace", config_.limits.channels_per_namespace);
  }
  return &Restore(ChannelId{ids.Next()}, ns, std::string(name));
}

Channel& Channels::Restore(ChannelId id, Namespace& ns, std::string name) {
  auto fresh = std::make_unique<Channel>(id, ns, ns.queued_shares, ns.uses, totals_, name);
  Channel& made = *fresh;
  all_.emplace(id, &made);
  ns.channels.emplace(std::move(name), std::move(fresh));
  return made;
}

ChannelEndId Channels::Open(Session& session, Channel& channel, const OpenChannelCall& call) {
  const ChannelEndId id{end_ids.Next()};
  ChannelEnd end{.channel = &channel, .role = call.role, .request = call.request};
  const Run run = RunOf(call.run);
  if (channel.Enter(run) && call.fresh) Clear(channel.TakeQueue(true));
  end.seen = channel.Open({.session = session.id, .end = id, .role = call.role, .run = run});
  if (channel.lingers_until) lingering_.erase({*std::exchange(channel.lingers_until, std::nullopt), &channel});
  journal_.Put(channel);
  journal_.Put(end, id);
  session.ends.emplace(id, end);
  ++session.account->channel_ends;
  return id;
}

void Channels::RestoreEnd(Session& session, Channel::Member member, const ChannelEnd& end) {
  end.channel->RestoreEnd(member);
  session.ends.emplace(member.end, end);
  ++session.account->channel_ends;
}

void Channels::Settle(Channel& channel, Clock::time_point now) {
  LetPass(channel);
  const auto until = std::exchange(channel.lingers_until, std::nullopt);
  if (!channel.members().empty()) return;
  if (!channel.awaits_receiver()) return Drop(channel);
  Linger(channel, until.value_or(now + rights_.PolicyOf(channel.ns()->name()).orphan_grace));
}

void Channels::Linger(Channel& channel, Clock::time_point until) {
  channel.lingers_until = until;
  lingering_.emplace(until, &channel);
  flags_.sweep_wanted.store(true);
}

Status Channels::NoticeTo(Channel& channel, ChannelEndId end, uint64_t seen) {
  const uint64_t notified = channel.past().notified_receiver;
  Status notice = channel.NoticeTo(end, seen);
  if (channel.past().notified_receiver != notified) journal_.Put(channel);
  return notice;
}

Result<ChannelEnd> Channels::EndOf(const Session& session, ChannelEndId id, ChannelRole role) {
  const auto found = session.ends.find(id);
  if (found == session.ends.end()) return ChannelNotOpen();
  if (found->second.role == role) return found->second;
  return FailedPrecondition("this end of channel '", found->second.channel->name(), "' ",
                            role == ChannelRole::kSender ? "receives" : "sends")
      .Because("WRONG_END");
}

// The record of the channel names the end that was closed last, so the next daemon does not close it once more.
void Channels::Close(const Session& session, ChannelEndId id, const ChannelEnd& end, EndedHow how,
                     Clock::time_point now) {
  Channel& channel = *end.channel;
  --session.account->channel_ends;
  channel.direct = nullptr;  // a session that ends has ended its direct channels before
  Notice notice{
      .how = how, .process_id = session.peer.process_id, .client = session.client, .shares = end.shares, .at = now};
  channel.Close(id, std::move(notice), end.received);
  // A receiver that died may come back for what is queued.
  const bool unwanted = end.role == ChannelRole::kReceiver && channel.receivers() == 0 && how == EndedHow::kClosed;
  auto queue = unwanted && !channel.broadcasts() ? channel.TakeQueue(false) : channel.TakePassed();
  const bool alone = channel.members().empty();
  if (alone && channel.awaits_receiver()) Linger(channel, now + rights_.PolicyOf(channel.ns()->name()).orphan_grace);
  const bool stays = !alone || channel.lingers_until.has_value();
  if (stays) journal_.Put(channel);
  if (!stays) journal_.Erase(channel);
  journal_.Erase(end.record);
  Clear(std::move(queue));
  if (!stays) Drop(channel);
}

uint64_t Channels::Drain(Channel& channel) {
  const uint64_t dropped = channel.queued();
  auto queue = channel.TakeQueue(true);
  journal_.Put(channel);
  Clear(std::move(queue));
  if (channel.members().empty()) Drop(channel);
  return dropped;
}

// Settles a few shares at once and leaves the rest to slices of the sweep.
void Channels::Clear(std::deque<Share*> queue) {
  uint64_t at_once = 8;
  if (!queue.empty()) unqueued_.push_back(std::move(queue));
  ClearQueues(&at_once);
  if (!unqueued_.empty()) flags_.sweep_wanted.store(true);
}

void Channels::Drop(Channel& channel) {
  journal_.Erase(channel);
  Clear(channel.TakeQueue(false));
  flags_.sweep_wanted.store(true);  // the namespace may be unused now
  if (channel.lingers_until) lingering_.erase({*channel.lingers_until, &channel});
  all_.erase(channel.id());
  auto& its = channel.ns()->channels;
  its.erase(its.find(channel.name()));
}

void Channels::ClearQueues(uint64_t* steps) {
  while (!unqueued_.empty() && TakeStep(steps)) {
    std::deque<Share*>& queue = unqueued_.front();
    Share& share = *queue.front();
    queue.pop_front();
    if (queue.empty()) unqueued_.pop_front();
    --share.queued;
    shares_.Settle(share);
  }
}

void Channels::DropLingering(Clock::time_point now, uint64_t* steps) {
  while (!lingering_.empty() && lingering_.begin()->first <= now && TakeStep(steps)) Drop(*lingering_.begin()->second);
}

}  // namespace arraybridge::daemon
