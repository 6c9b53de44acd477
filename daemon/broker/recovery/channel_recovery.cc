// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/recovery/channel_recovery.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/broker/ledger/times.h"
#include "daemon/broker/objects/kept_ranges.h"
#include "daemon/broker/objects/runs/run.h"

namespace arraybridge::daemon {
namespace {

std::vector<Notice> NoticesOf(const std::vector<record::Notice>& records) {
  std::vector<Notice> notices;
  for (const record::Notice& each : records) {
    auto client = std::make_shared<const std::string>(each.client);
    notices.push_back({each.number, each.after, EndedHow(each.how), each.stream, each.process_id, std::move(client),
                       each.shares, each.missing, TimeOf(each.at), RunOf(each.run)});
  }
  return notices;
}

Channel::Past PastOf(const record::Channel& its) {
  Channel::Past past;
  past.terms = {its.capacity, ChannelMode(its.mode), its.drop_oldest, its.replay};
  past.stream = its.stream;
  past.sent = its.sent;
  past.taken = its.taken;
  past.notified_receiver = its.notified_receiver;
  past.closed = ChannelEndId{its.closed};
  past.received = its.received;
  past.had_receivers = its.had_receivers;
  past.begun = its.begun;
  past.drained = its.drained;
  past.missing = its.missing;
  past.run = RunOf(its.run);
  past.to_receivers.Restore(NoticesOf(its.to_receivers), its.last_to_receivers);
  past.to_senders.Restore(NoticesOf(its.to_senders), its.last_to_senders);
  return past;
}

}  // namespace

Broker::ChannelRecovery::ChannelRecovery(Records& records, StoredFiles& files) : records_(records), files_(files) {
  for (const Records::Entry& entry : records_.Of(record::kChannelEnd)) {
    sessions_.insert(entry.Read<record::ChannelEnd>().session);
  }
  for (const Records::Entry& entry : records_.Of(record::kDirectChannel)) {
    const auto its = entry.Read<record::DirectChannel>();
    sessions_.insert({its.sender, its.receiver});
  }
}

void Broker::ChannelRecovery::DirectChannels(State& state) {
  for (const Records::Entry& entry : records_.Of(record::kDirectChannel)) RestoreDirect(state, entry);
}

void Broker::ChannelRecovery::RestoreDirect(State& state, const Records::Entry& entry) {
  const auto its = entry.Read<record::DirectChannel>();
  const std::string name = StoredName(kStoredDirectChannel, its.id);
  std::vector<UniqueFd> files;
  for (size_t i = 0; i < DirectChannel::kStored; ++i) {
    if (UniqueFd file = files_.Take(name); file.valid()) files.push_back(std::move(file));
  }
  auto adopted = DirectChannel::Adopt(its.capacity, its.id, TimeOf(its.born), std::move(files));
  if (!adopted.ok()) return state.journal.Erase(entry.place);
  const std::shared_ptr<DirectChannel> pages = *std::move(adopted);
  pages->stored = state.journal.Has(name);
  auto direct = std::make_shared<DirectChannelRecord>();
  direct->channel = ChannelId{its.channel};
  direct->ns = its.ns;
  direct->sender = SessionId{its.sender};
  direct->sending = ChannelEndId{its.sending};
  direct->receiver = SessionId{its.receiver};
  direct->receiving = ChannelEndId{its.receiving};
  direct->sender_uid = its.sender_uid;
  direct->receiver_uid = its.receiver_uid;
  direct->pages = pages;
  direct->open = pages->opened();
  direct->kept = std::make_shared<KeptRanges>(pages);
  direct->record = entry.place;
  state.direct_channels.Add(direct);
  direct_.emplace(its.id, std::move(direct));
}

void Broker::ChannelRecovery::Channels(State& state) {
  for (const Records::Entry& entry : records_.Of(record::kChannel)) RestoreChannel(state, entry);
  for (const Records::Entry& entry : records_.Of(record::kChannelEnd)) RestoreEnd(state, entry);
}

void Broker::ChannelRecovery::RestoreChannel(State& state, const Records::Entry& entry) {
  const auto its = entry.Read<record::Channel>();
  std::string name(its.name);
  const auto owner = state.namespaces.FindOrMake({its.ns_uid, its.ns}, its.ns_uid);
  if (!owner.ok() || Channels::FindIn(**owner, name) != nullptr) return state.journal.Erase(entry.place);
  Channel& channel = state.channels.Restore(ChannelId{its.id}, **owner, std::move(name));
  channel.record = entry.place;
  channel.lingers_until = TimeIfAny(its.lingers_until);
  channel.Restore(PastOf(its), its.dropped);
}

// An end that is in the record of its channel as closed was being closed.
void Broker::ChannelRecovery::RestoreEnd(State& state, const Records::Entry& entry) {
  const auto its = entry.Read<record::ChannelEnd>();
  Channel* const channel = state.channels.Find(ChannelId{its.channel});
  Session* const session = state.sessions.Find(SessionId{its.session});
  if (channel == nullptr || session == nullptr || channel->past().closed == ChannelEndId{its.id}) {
    return state.journal.Erase(entry.place);
  }
  const ChannelRole role{static_cast<uint8_t>(its.role)};
  ChannelEnd end{.channel = channel, .role = role, .shares = its.shares};
  Channel::Member member{.session = session->id, .end = ChannelEndId{its.id}, .role = role, .run = RunOf(its.run)};
  end.record = entry.place;
  end.request = its.request;
  end.seen = its.seen;
  end.counted = its.counted;
  if (role == ChannelRole::kSender) {
    std::copy_n(its.sends.begin(), std::min(its.sends.size(), end.sends.size()), end.sends.begin());
    if (end.counted != 0) channel->RestoreSent(end.counted);
  } else {
    end.received = its.received;
    member.passed = its.passed;
    member.dropped = its.dropped;
    member.late = its.late;
  }
  state.channels.RestoreEnd(*session, member, end);
  ends_.emplace(its.id, &session->ends.at(member.end));
}

std::shared_ptr<KeptRanges> Broker::ChannelRecovery::RangesOf(uint64_t direct_channel) const {
  const auto found = direct_.find(direct_channel);
  return found == direct_.end() ? std::make_shared<KeptRanges>() : found->second->kept;
}

void Broker::ChannelRecovery::NoteSent(State& state, const record::Share& its, Share* share) {
  Channel* const channel = state.channels.Find(ChannelId{its.channel});
  if (channel == nullptr) return;
  channel->RestoreSent(its.sequence);
  if (const auto end = ends_.find(its.sending); end != ends_.end() && its.sequence > end->second->counted) {
    end->second->NoteSent(its.sequence, its.request);
  }
  if (!its.queued || its.sequence <= channel->past().taken) return;
  if (share != nullptr) waiting_[its.channel].emplace(its.sequence, share);
  if (share == nullptr) channel->MissSome();
}

void Broker::ChannelRecovery::NoteReceived(State& state, Session* session, LeaseId lease, ChannelEndId receiver,
                                           Share& share) {
  Channel* const channel = state.channels.Find(share.channel);
  if (channel == nullptr || share.facts->sent == nullptr) return;
  const uint64_t sequence = share.facts->sent->sequence;
  const auto end = ends_.find(Number(receiver));
  if (session != nullptr && end != ends_.end() && Number(lease) > end->second->counted) {
    end->second->NoteReceived(lease);
    channel->RestoreReceived(receiver, sequence);
  }
  if (channel->broadcasts()) return;
  waiting_[Number(channel->id())].erase(sequence);
  share.unnoted = true;  // if the record says that it is queued, it does not after the lease
}

void Broker::ChannelRecovery::Finish(State& state, Recovered* recovered) {
  for (const Records::Entry& entry : records_.Of(record::kChannel)) {
    if (Channel* const channel = state.channels.Find(ChannelId{entry.id}); channel != nullptr)
      FillQueue(state, *channel);
  }
  for (const auto& [number, direct] : direct_) {
    direct->kept->Restore();
    if (state.sessions.Find(direct->receiver) == nullptr) direct->pages->MarkGone();
    const bool goes_on = Connect(state, direct);
    if (goes_on && (!direct->open || direct->pages->revoking())) recovered->revoking.push_back(direct);
    if (goes_on) continue;
    state.direct_channels.End(*direct);
    // Its sender may wait for ranges.
    const bool waits = direct->open && state.sessions.Find(direct->sender) != nullptr;
    if (!waits) state.Remove(*direct);
  }
}

void Broker::ChannelRecovery::FillQueue(State& state, Channel& channel) {
  std::vector<Share*> waiting;
  for (const auto& [sequence, share] : waiting_[Number(channel.id())]) waiting.push_back(share);
  for (Share* const other : channel.RestoreQueue(waiting)) other->unnoted = true;
  uint64_t received = 0;
  for (const Channel::Member& member : channel.members()) received += ends_.at(Number(member.end))->received;
  channel.RestoreTotals(received);
  // The counts that were derived from shares and leases outlive them from now on.
  state.journal.Put(channel);
  for (const Channel::Member& member : channel.members()) {
    state.journal.Put(*ends_.at(Number(member.end)), member.end);
  }
}

// Both ends count the shares that the receiver has received by calls, and the shares that wait. The previous daemon may
// have been killed before it counted the last one.
bool Broker::ChannelRecovery::Connect(State& state, const std::shared_ptr<DirectChannelRecord>& direct) {
  DirectChannel& pages = *direct->pages;
  if (pages.revoked()) return false;
  Channel* const channel = state.channels.Find(direct->channel);
  const auto receiving = ends_.find(Number(direct->receiving));
  if (channel == nullptr || receiving == ends_.end() || !ends_.contains(Number(direct->sending))) {
    if (channel != nullptr) channel->MissSome();
    pages.Revoke([](const direct_channel::Entry&, uint64_t) { return false; }, [](bool, uint64_t) {});
    return false;
  }
  channel->direct = direct;
  if (direct->open && !pages.revoking()) pages.RestoreCalls(receiving->second->received + channel->queued());
  return true;
}

void Broker::ChannelRecovery::Settle(State& state, Clock::time_point now) {
  for (const Records::Entry& entry : records_.Of(record::kChannel)) {
    if (Channel* const channel = state.channels.Find(ChannelId{entry.id}); channel != nullptr) {
      state.channels.Settle(*channel, now);
    }
  }
}

}  // namespace arraybridge::daemon
