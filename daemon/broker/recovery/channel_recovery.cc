// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/recovery/channel_recovery.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/broker/objects/kept_ranges.h"

namespace arraybridge::daemon {
namespace {

// `times`: when the ends of the notices ended; earlier daemons wrote none.
Channel::Past PastOf(const record::Channel& its, std::string_view notices, std::string_view times) {
  const auto has = [&](record::ChannelFlag flag) { return (its.flags & flag) != 0; };
  Channel::Past past;
  past.terms = {.capacity = its.capacity, .mode = ChannelMode(its.mode)};
  // Earlier daemons wrote no flag for a stated term.
  if (has(record::kDropOldest) || has(record::kStatesOnSlow)) past.terms.drop_oldest = has(record::kDropOldest);
  if (its.replay != 0 || has(record::kStatesReplay)) past.terms.replay = its.replay;
  past.stream = its.stream;
  past.sent = its.sent;
  past.taken = its.taken;
  past.notified_receiver = its.notified_receiver;
  past.closed = ChannelEndId{its.closed};
  past.received = its.received;
  past.had_receivers = has(record::kHadReceivers);
  past.begun = has(record::kBegun);
  past.drained = has(record::kDrained);
  past.missing = has(record::kMissing);
  std::vector<Notice> to_receivers;
  std::vector<Notice> to_senders;
  while (notices.size() >= sizeof(record::Notice)) {
    Reading<record::Notice> each(notices);
    Notice notice{each->number,     each->after, EndedHow(each->how), each->stream,
                  each->process_id, {},          each->shares,        each->missing != 0};
    notice.client = std::make_shared<const std::string>(each.Text(each->client_bytes));
    if (int64_t at = 0; times.size() >= sizeof at) {
      std::memcpy(&at, times.data(), sizeof at);
      times.remove_prefix(sizeof at);
      notice.at = TimeOf(at);
    }
    (each->to_senders != 0 ? to_senders : to_receivers).push_back(std::move(notice));
    notices = each.rest();
  }
  past.to_receivers.Restore(std::move(to_receivers), its.last_to_receivers);
  past.to_senders.Restore(std::move(to_senders), its.last_to_senders);
  return past;
}

}  // namespace

Broker::ChannelRecovery::ChannelRecovery(Records& records, StoredFiles& files) : records_(records), files_(files) {
  for (const Records::Entry& entry : records_.Of(record::kChannelEnd)) {
    sessions_.insert(Reading<record::ChannelEnd>(entry.content)->session);
  }
  for (const Records::Entry& entry : records_.Of(record::kDirectChannel)) {
    const Reading<record::DirectChannel> its(entry.content);
    sessions_.insert({its->sender, its->receiver});
  }
}

void Broker::ChannelRecovery::DirectChannels(State& state) {
  for (const Records::Entry& entry : records_.Of(record::kDirectChannel)) RestoreDirect(state, entry);
}

void Broker::ChannelRecovery::RestoreDirect(State& state, const Records::Entry& entry) {
  Reading<record::DirectChannel> its(entry.content);
  const std::string name = StoredName(kStoredDirectChannel, its->number);
  std::vector<UniqueFd> files;
  for (size_t i = 0; i < DirectChannel::kStored; ++i) {
    if (UniqueFd file = files_.Take(name); file.valid()) files.push_back(std::move(file));
  }
  auto adopted = DirectChannel::Adopt(its->capacity, its->number, TimeOf(its->born), std::move(files));
  if (!adopted.ok()) return state.journal.Erase(entry.place);
  const std::shared_ptr<DirectChannel> pages = *std::move(adopted);
  pages->stored = state.journal.Has(name);
  auto direct = std::make_shared<DirectChannelRecord>();
  direct->channel = ChannelId{its->channel};
  direct->ns = its.Text(its->ns_bytes);
  direct->sender = SessionId{its->sender};
  direct->sending = ChannelEndId{its->sending};
  direct->receiver = SessionId{its->receiver};
  direct->receiving = ChannelEndId{its->receiving};
  direct->sender_uid = its->sender_uid;
  direct->receiver_uid = its->receiver_uid;
  direct->pages = pages;
  direct->open = pages->opened();
  direct->kept = std::make_shared<KeptRanges>(pages);
  direct->record = entry.place;
  state.direct_channels.Add(direct);
  direct_.emplace(its->number, std::move(direct));
}

void Broker::ChannelRecovery::Channels(State& state) {
  for (const Records::Entry& entry : records_.Of(record::kChannel)) RestoreChannel(state, entry);
  for (const Records::Entry& entry : records_.Of(record::kChannelEnd)) RestoreEnd(state, entry);
}

void Broker::ChannelRecovery::RestoreChannel(State& state, const Records::Entry& entry) {
  Reading<record::Channel> its(entry.content);
  const std::string ns = its.Text(its->ns_bytes);
  std::string name = its.Text(its->name_bytes);
  const auto owner = state.namespaces.FindOrMake({its->ns_uid, ns}, its->ns_uid);
  if (!owner.ok() || Channels::FindIn(**owner, name) != nullptr) return state.journal.Erase(entry.place);
  Channel& channel = state.channels.Restore(ChannelId{its->id}, **owner, std::move(name));
  channel.record = entry.place;
  if (its->lingers_until != 0) channel.lingers_until = TimeOf(its->lingers_until);
  const std::string notices = its.Text(its->notices_bytes);
  channel.Restore(PastOf(*its, notices, its.rest()), its->dropped);
}

// An end that is in the record of its channel as closed was being closed.
void Broker::ChannelRecovery::RestoreEnd(State& state, const Records::Entry& entry) {
  const Reading<record::ChannelEnd> its(entry.content);
  Channel* const channel = state.channels.Find(ChannelId{its->channel});
  Session* const session = state.sessions.Find(SessionId{its->session});
  if (channel == nullptr || session == nullptr || channel->past().closed == ChannelEndId{its->id}) {
    return state.journal.Erase(entry.place);
  }
  const ChannelRole role{static_cast<uint8_t>(its->role)};
  ChannelEnd end{.channel = channel, .role = role, .shares = its->shares};
  Channel::Member member{SessionId{its->session}, ChannelEndId{its->id}, role};
  end.record = entry.place;
  end.request = its->request;
  end.seen = its->seen;
  end.counted = its->counted;
  if (role == ChannelRole::kSender) {
    end.sends = its.Rest<record::Sender>().requests;
    if (end.counted != 0) channel->RestoreSent(end.counted);
  } else {
    const auto more = its.Rest<record::Receiver>();
    end.received = more.received;
    member.passed = more.passed;
    member.dropped = more.dropped;
    member.late = more.late;
  }
  state.channels.RestoreEnd(*session, member, end);
  ends_.emplace(its->id, &session->ends.at(member.end));
}

std::shared_ptr<KeptRanges> Broker::ChannelRecovery::RangesOf(uint64_t direct_channel) const {
  const auto found = direct_.find(direct_channel);
  return found == direct_.end() ? std::make_shared<KeptRanges>() : found->second->kept;
}

void Broker::ChannelRecovery::NoteSent(State& state, const record::Sent& sent, uint64_t request, bool queued,
                                       Share* share) {
  Channel* const channel = state.channels.Find(ChannelId{sent.channel});
  if (channel == nullptr) return;
  channel->RestoreSent(sent.sequence);
  if (const auto end = ends_.find(sent.sending); end != ends_.end() && sent.sequence > end->second->counted) {
    end->second->NoteSent(sent.sequence, request);
  }
  if (!queued || sent.sequence <= channel->past().taken) return;
  if (share != nullptr) waiting_[sent.channel].emplace(sent.sequence, share);
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
    state.journal.Put(member.end, *ends_.at(Number(member.end)));
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
