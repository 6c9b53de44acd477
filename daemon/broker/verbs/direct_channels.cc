// SPDX-License-Identifier: Apache-2.0
// The Broker's part in direct channels: between which sessions there is one, when it is open, and which senders still
// wait for ranges. The service revokes them, since it publishes the entries that stand there.
#include <algorithm>
#include <utility>

#include "daemon/broker/objects/kept_ranges.h"
#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {
namespace {

Status NoDirectChannel(std::string_view why) {
  return NotFound("no direct channel: ", why).Because("NO_DIRECT_CHANNEL");
}

DirectEnd SideOf(ChannelRole role) {
  return role == ChannelRole::kSender ? DirectEnd::kProducer : DirectEnd::kConsumer;
}

static_assert(kEntriesOfDirectChannel == DirectChannel::kStored);

}  // namespace

// Without the direct channel itself. REQUIRES: the channel has one sender and one receiver.
Result<DirectChannelRecord> Broker::State::PlanDirectChannel(const Channel& channel) const {
  DirectChannelRecord planned{.channel = channel.id(), .ns = channel.ns()->name(), .pages = nullptr, .kept = nullptr};
  for (const Channel::Member& member : channel.members()) {
    const Session* const session = sessions.Find(member.session);
    if (session == nullptr) return NoDirectChannel("an end is being closed");
    if (session->peer.door != Door::kLifeline) return NoDirectChannel("an end is not at a lifeline");
    AB_RETURN_IF_ERROR(accounts.CheckDescriptors(*session, kDescriptorsOfDirectChannel, kEntriesOfDirectChannel));
    AB_RETURN_IF_ERROR(accounts.CheckObjects(*session, "TOO_MANY_DIRECT_CHANNELS", object_bytes::kDirectChannel));
    const bool sends = member.role == ChannelRole::kSender;
    (sends ? planned.sender : planned.receiver) = member.session;
    (sends ? planned.sending : planned.receiving) = member.end;
    (sends ? planned.sender_uid : planned.receiver_uid) = session->peer.uid;
  }
  return planned;
}

Result<ExportedDirectChannel> Broker::ExportDirectChannel(SessionId session, ChannelEndId id) {
  State& state = *state_;
  ExportedDirectChannel exported;
  std::shared_ptr<DirectChannel> direct;
  std::shared_ptr<DirectChannel> fresh;  // made without the lock; dies after it if another came first
  DirectEnd side{};
  while (direct == nullptr) {
    uint64_t capacity = 0;
    uint64_t number = 0;
    {
      const MutexLock lock(state.mutex);
      AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
      const auto end = found->ends.find(id);
      if (end == found->ends.end()) return NotFound("this end of a channel is not open").Because("CHANNEL_NOT_OPEN");
      Channel& channel = *end->second.channel;
      if (channel.broadcasts()) return NoDirectChannel("the channel is no queue");
      if (channel.senders() != 1 || channel.receivers() != 1) return NoDirectChannel("not one sender and one receiver");
      if (channel.capacity() > direct_channel::kCapacityMax) return NoDirectChannel("the channel is too large");
      if (channel.direct == nullptr) {
        AB_ASSIGN_OR_RETURN(auto planned, state.PlanDirectChannel(channel));
        if (fresh != nullptr) {
          planned.pages = std::exchange(fresh, nullptr);
          planned.kept = std::make_shared<KeptRanges>(planned.pages);
          channel.direct = std::make_shared<DirectChannelRecord>(std::move(planned));
          state.journal.Put(*channel.direct);
          state.direct_channels.Add(channel.direct);
        } else {
          AB_RETURN_IF_ERROR(state.journal.CheckRoom(planned.ns.size()));
          number = state.direct_channel_ids.Next();
        }
      }
      if (channel.direct != nullptr) {
        direct = channel.direct->pages;
        const Session* const sender = state.sessions.Find(channel.direct->sender);
        AB_CHECK(sender != nullptr);  // with it the direct channel had ended
        exported.sender_process_id = sender->peer.process_id;
        exported.sender = sender->client;
      }
      side = SideOf(end->second.role);
      capacity = channel.capacity();
    }
    if (direct != nullptr) break;
    AB_ASSIGN_OR_RETURN(auto created, DirectChannel::Create(capacity, number, state.journal.keeps()));
    AB_RETURN_IF_ERROR(state.Store(*created));
    fresh = std::move(created);
  }
  AB_ASSIGN_OR_RETURN(auto files, direct->Export(side));
  exported.files = std::move(files);
  return exported;
}

Status Broker::State::Store(DirectChannel& direct) const {
  if (!journal.keeps()) return Ok();
  AB_ASSIGN_OR_RETURN(const auto files, direct.ExportForNextDaemon());
  std::vector<int> numbers(files.size());
  std::ranges::transform(files, numbers.begin(), &UniqueFd::get);
  AB_ASSIGN_OR_RETURN(direct.stored, journal.Store(StoredName(kStoredDirectChannel, direct.number()), numbers));
  return Ok();
}

Result<ChannelId> Broker::DirectChannelMapped(SessionId session, ChannelEndId end, uint64_t number) {
  State& state = *state_;
  const auto of = DirectChannelOf(session, end);
  // Its end may have mapped an earlier one, which was revoked in the meantime.
  if (of == nullptr || of->pages->number() != number) return NoDirectChannel("it has ended");
  AB_RETURN_IF_ERROR(of->pages->Seal(of->sending == end ? DirectEnd::kProducer : DirectEnd::kConsumer));
  const MutexLock lock(state.mutex);
  Channel* const channel = state.channels.Find(of->channel);
  if (channel == nullptr || channel->direct != of) return NoDirectChannel("it has ended");
  DirectChannelRecord& direct = *channel->direct;
  if (direct.open || !direct.pages->sealed()) return of->channel;
  const Session* const receiver = state.sessions.Find(direct.receiver);
  AB_CHECK(receiver != nullptr);  // with it the direct channel had ended
  const uint64_t calls = receiver->ends.at(direct.receiving).received + channel->queued();
  direct.pages->Open(calls, channel->next_sequence() - 1 - calls, channel->stream());
  direct.open = true;
  return of->channel;
}

std::shared_ptr<const DirectChannelRecord> Broker::DirectChannelOf(SessionId session, ChannelEndId end) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return nullptr;
  const auto open = found->ends.find(end);
  return open == found->ends.end() ? nullptr : open->second.channel->direct;
}

std::shared_ptr<const DirectChannelRecord> Broker::DirectChannelIn(SessionId session, std::string_view ns,
                                                                   std::string_view channel) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return nullptr;
  const auto key = state_->rights.KeyOf(found->peer, ns, Right::kWrite);
  const Namespace* const owner = key.ok() ? state_->namespaces.Find(*key) : nullptr;
  if (owner == nullptr) return nullptr;
  const auto known = owner->channels.find(channel);
  return known == owner->channels.end() ? nullptr : known->second->direct;
}

std::vector<std::shared_ptr<const DirectChannelRecord>> Broker::DirectChannelsOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const auto its = state_->direct_channels.Of(session);
  return {its.begin(), its.end()};
}

void Broker::DirectChannelEnded(const DirectChannelRecord& direct, bool complete, uint64_t taken) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Channel* const found = state.channels.Find(direct.channel);
  if (found == nullptr || found->direct.get() != &direct) return;
  if (!complete) found->MissSome();
  if (direct.open) found->PassedDirectly(direct.pages->SequenceOf(taken), taken);
  for (const auto& [session, end] : {std::pair(direct.sender, direct.sending), {direct.receiver, direct.receiving}}) {
    Session* const its = state.sessions.Find(session);
    const auto open = its == nullptr ? std::map<ChannelEndId, ChannelEnd>::iterator{} : its->ends.find(end);
    if (its == nullptr || open == its->ends.end()) continue;
    open->second.shares += taken;
    state.journal.Put(open->second, end);
  }
  state.journal.Put(*found);
  const std::shared_ptr<DirectChannelRecord> its = std::exchange(found->direct, nullptr);
  state.direct_channels.End(*its);
  if (!its->open) state.Remove(*its);  // else its sender says when it waits for nothing more
}

void Broker::ForgetDirectChannels(SessionId sender, std::span<const uint64_t> numbers) {
  State& state = *state_;
  std::vector<std::shared_ptr<DirectChannelRecord>> forgotten;  // die after the lock
  const MutexLock lock(state.mutex);
  for (const uint64_t number : numbers) {
    auto direct = state.direct_channels.Find(sender, number);
    if (direct == nullptr || !direct->ended) continue;
    state.Remove(*direct);
    forgotten.push_back(std::move(direct));
  }
}

std::vector<std::shared_ptr<DirectChannelRecord>> Broker::State::TakeDirectChannels(SessionId session) {
  auto taken = direct_channels.Of(session);
  for (const auto& each : taken) {
    if (each->receiver == session && !stopping) each->pages->MarkGone();
    // Its sender still waits for the ranges that are in use, and says when it waits for none.
    const bool waits = each->sender != session && each->open && each->kept->in_use();
    waits ? direct_channels.End(*each) : Remove(*each);
  }
  return taken;
}

void Broker::State::Remove(DirectChannelRecord& direct) {
  journal.Erase(direct);
  direct_channels.Remove(direct);
  direct.kept = nullptr;
}

// The consumer of a direct channel may map the arenas of its producer, if they are host memory: other kinds do not
// travel in direct channels.
bool Broker::State::IsInDirectChannelOf(const Session& session, ChannelEndId receiving, const Arena& arena) const {
  const auto end = session.ends.find(receiving);
  if (end == session.ends.end() || end->second.channel->direct == nullptr) return false;
  const DirectChannelRecord& direct = *end->second.channel->direct;
  const bool receives = direct.open && direct.receiving == receiving;
  const bool sends =
      arena.writer != nullptr && arena.writer->id == direct.sender && arena.ns() == end->second.channel->ns();
  return receives && sends && arena.kind() == HandleKind::kMemfd && session.peer.Opens(arena.kind()) &&
         arena.immutability.has_value();
}

}  // namespace arraybridge::daemon
