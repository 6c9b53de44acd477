// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/journal.h"

#include <array>
#include <charconv>
#include <vector>

#include "daemon/broker/ledger/times.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/channel.h"
#include "daemon/broker/objects/direct_channel_record.h"
#include "daemon/broker/objects/kept_ranges.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {
namespace {

std::string_view TextOf(const std::shared_ptr<const std::string>& text) {
  return text == nullptr ? std::string_view() : *text;
}
std::string_view TextOf(const Token& token) { return {reinterpret_cast<const char*>(token.data()), token.size()}; }

std::vector<record::Notice> RecordsOf(const Notices& notices) {
  std::vector<record::Notice> records;
  records.reserve(notices.list().size());
  for (const Notice& each : notices.list()) {
    records.push_back({.number = each.number,
                       .after = each.after,
                       .stream = each.stream,
                       .process_id = each.process_id,
                       .client = TextOf(each.client),
                       .shares = each.shares,
                       .how = static_cast<uint32_t>(each.how),
                       .missing = each.missing,
                       .at = NsOf(each.at),
                       .run = TextOf(each.run)});
  }
  return records;
}

}  // namespace

record::Arena RecordOf(const Arena& arena) {
  record::Arena its{.id = Number(arena.id()),
                    .generation = arena.generation(),
                    .size = arena.block()->size(),
                    .maker = arena.maker == nullptr ? 0 : Number(arena.maker->id),
                    .request = arena.request,
                    .maker_uid = arena.maker_uid,
                    .ns_uid = arena.ns()->uid(),
                    .ns = arena.ns()->name(),
                    .device_kind = arena.device().type,
                    .device_id = arena.device().id,
                    .device_uuid = arena.device().uuid,
                    .kind = static_cast<uint32_t>(arena.kind()),
                    .writable = arena.writer != nullptr};
  if (arena.immutability) its.sealed = static_cast<uint32_t>(*arena.immutability);
  return its;
}

record::Share RecordOf(const Share& share) {
  record::Share its{.id = Number(share.facts->id),
                    .generation = share.facts->generation,
                    .arena = Number(share.arena->id()),
                    .offset = share.offset,
                    .size = share.size,
                    .maker = Number(share.maker),
                    .maker_uid = share.maker_uid,
                    .maker_process_id = share.maker_process_id,
                    .maker_client = TextOf(share.maker_client),
                    .request = share.request,
                    .root = share.root == nullptr ? 0 : Number(share.root->facts->id),
                    .born = NsOf(share.born),
                    .expires = NsOf(share.expires),
                    .orphan_until = NsOf(share.orphan_until),
                    .unnamed = share.facts->unnamed,
                    .withdrawn = share.withdrawn,
                    .pending = !share.fence.done(),
                    .kept = share.kept_in != nullptr,
                    .name = share.facts->name,
                    .description = share.facts->description,
                    .note = share.note,
                    .queued = share.queued > 0,
                    .bit = share.kept_bit,
                    .file = FileOf(share.stored),
                    .durable = IsDurable(share.stored),
                    .rank = NumberOf(share.rank)};
  if (const SentFacts* const sent = share.facts->sent.get(); sent != nullptr) {
    its.channel = Number(share.channel);
    its.sending = Number(share.sent_by);
    its.sequence = sent->sequence;
    its.stream = sent->stream;
    its.time_ns = sent->time_ns;
  }
  if (its.kept && share.kept_in->pages() != nullptr) its.direct_channel = share.kept_in->pages()->number();
  return its;
}

record::Session RecordOf(const Session& session) {
  const Peer& peer = session.peer;
  record::Session its{.id = Number(session.id),
                      .born = NsOf(session.born),
                      .token = TextOf(session.token),
                      .uid = peer.uid,
                      .gid = peer.gid,
                      .process_id = peer.process_id,
                      .door = static_cast<uint32_t>(peer.door),
                      .client = peer.client,
                      .refused = peer.refused,
                      .events = peer.events,
                      .secret = peer.token,
                      .gpus = {peer.gpus.begin(), peer.gpus.end()}};
  for (const HandleKind kind : peer.kinds) its.kinds.push_back(static_cast<uint32_t>(kind));
  return its;
}

record::Returned RecordOf(const RangeOfArena& range, SessionId session) {
  return {.session = Number(session), .arena = Number(range.arena), .offset = range.offset, .size = range.size};
}

record::Ticket RecordOf(const Ticket& ticket, SessionId session) {
  return {.token = TextOf(ticket.token),
          .session = Number(session),
          .arena = Number(ticket.arena),
          .deadline = NsOf(ticket.deadline),
          .access = static_cast<uint32_t>(ticket.access)};
}

record::Channel RecordOf(const Channel& channel) {
  const Channel::Past& past = channel.past();
  return {.id = Number(channel.id()),
          .ns_uid = channel.ns()->uid(),
          .ns = channel.ns()->name(),
          .name = channel.name(),
          .capacity = past.terms.capacity,
          .mode = static_cast<uint32_t>(past.terms.mode),
          .drop_oldest = past.terms.drop_oldest,
          .replay = past.terms.replay,
          .stream = past.stream,
          .sent = past.sent,
          .taken = past.taken,
          .notified_receiver = past.notified_receiver,
          .closed = Number(past.closed),
          .dropped = channel.totals().dropped,
          .received = past.received,
          .had_receivers = past.had_receivers,
          .begun = past.begun,
          .drained = past.drained,
          .missing = past.missing,
          .to_receivers = RecordsOf(past.to_receivers),
          .last_to_receivers = past.to_receivers.last(),
          .to_senders = RecordsOf(past.to_senders),
          .last_to_senders = past.to_senders.last(),
          .lingers_until = NsOf(channel.lingers_until),
          .run = TextOf(past.run)};
}

record::ChannelEnd RecordOf(const ChannelEnd& end, ChannelEndId id) {
  const Channel::Member& member = *end.channel->FindMember(id);
  return {.id = Number(id),
          .channel = Number(end.channel->id()),
          .session = Number(member.session),
          .role = static_cast<uint32_t>(end.role),
          .request = end.request,
          .seen = end.seen,
          .shares = end.shares,
          .counted = end.counted,
          .sends = {end.sends.begin(), end.sends.end()},
          .received = end.received,
          .passed = member.passed,
          .dropped = member.dropped,
          .late = member.late,
          .run = TextOf(member.run)};
}

record::DirectChannel RecordOf(const DirectChannelRecord& direct) {
  return {.id = direct.pages->number(),
          .channel = Number(direct.channel),
          .sender = Number(direct.sender),
          .sending = Number(direct.sending),
          .receiver = Number(direct.receiver),
          .receiving = Number(direct.receiving),
          .capacity = direct.pages->capacity(),
          .born = NsOf(direct.pages->born()),
          .sender_uid = direct.sender_uid,
          .receiver_uid = direct.receiver_uid,
          .ns = direct.ns};
}

std::string StoredName(char letter, uint64_t number) {
  std::array<char, 24> text;
  text[0] = letter;
  const auto end = std::to_chars(text.data() + 1, text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

void Journal::Begin(std::unique_ptr<RecordFile> file, DescriptorStore& store) {
  file_ = std::move(file);
  store_ = &store;
  pages_.ContinueIn(word(record::kLastPage));
}

Status Journal::CheckRoom(uint64_t bytes) {
  if (!keeps() || file_->Reserve(bytes)) return Ok();
  return ResourceExhausted("no memory for the journal of the broker").Because("SYSTEM_MEMORY");
}

void Journal::Erase(Place record) {
  if (keeps()) file_->Erase(record);
}

Result<StoreGuard> Journal::Store(std::string name, std::span<const int> files, DescriptorStore::Until until) const {
  if (store_ == nullptr) return StoreGuard();
  std::vector<DescriptorStore::Entry> entries;
  entries.reserve(files.size());
  for (const int file : files) entries.push_back({name, file});
  const Status stored = store_->Store(entries, until);
  // Without its holder the daemon serves on, and says so.
  if (!stored.ok() && store_->usage().holder_has_ended) return StoreGuard();
  // Some of them may be stored, or will be when the holder goes on.
  if (!stored.ok() && stored.reason() != "STORE_FULL") store_->Remove(name);
  if (!stored.ok()) return stored;
  return Has(std::move(name));
}

}  // namespace arraybridge::daemon
