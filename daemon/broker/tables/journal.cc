// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/journal.h"

#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/channel.h"
#include "daemon/broker/objects/direct_channel_record.h"
#include "daemon/broker/objects/kept_ranges.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {
namespace {

template <class Fixed>
std::string_view BytesOf(const Fixed& fixed) {
  return {reinterpret_cast<const char*>(&fixed), sizeof fixed};
}

int64_t NsOf(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
int64_t NsOf(const std::optional<std::chrono::steady_clock::time_point>& time) { return time ? NsOf(*time) : 0; }

// Texts are shorter than their limits, which the doors check; a longer one would be cut.
template <class Size>
std::string_view Fit(std::string_view text, Size& size) {
  text = text.substr(0, static_cast<Size>(-1));
  size = static_cast<Size>(text.size());
  return text;
}

void AddNotices(const Notices& notices, bool to_senders, std::string* to, std::string* times) {
  for (const Notice& each : notices.list()) {
    record::Notice fixed{};
    fixed.number = each.number;
    fixed.after = each.after;
    fixed.stream = each.stream;
    fixed.process_id = each.process_id;
    fixed.shares = each.shares;
    fixed.how = static_cast<uint8_t>(each.how);
    fixed.missing = each.missing ? 1 : 0;
    fixed.to_senders = to_senders ? 1 : 0;
    const std::string_view client = Fit(each.client == nullptr ? std::string_view() : *each.client, fixed.client_bytes);
    to->append(BytesOf(fixed)).append(client);
    const int64_t at = NsOf(each.at);
    times->append(BytesOf(at));
  }
}

}  // namespace

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

void Journal::Put(Arena& arena) {
  if (!keeps()) return;
  record::Arena fixed{};
  fixed.id = Number(arena.id());
  fixed.generation = arena.generation();
  fixed.size = arena.block()->size();
  fixed.maker = arena.maker == nullptr ? 0 : Number(arena.maker->id);
  fixed.request = arena.request;
  fixed.maker_uid = arena.maker_uid;
  fixed.ns_uid = arena.ns()->uid();
  fixed.device_kind = arena.device().type;
  fixed.device_id = arena.device().id;
  fixed.kind = static_cast<uint8_t>(arena.kind());
  fixed.sealed = arena.immutability ? static_cast<uint8_t>(1 + static_cast<int>(*arena.immutability)) : uint8_t{0};
  fixed.writable = arena.writer != nullptr ? 1 : 0;
  const std::string_view ns = Fit(arena.ns()->name(), fixed.ns_bytes);
  const std::string_view uuid = Fit(arena.device().uuid, fixed.uuid_bytes);
  arena.record = file_->Replace(arena.record, record::kArena, {BytesOf(fixed), ns, uuid});
}

void Journal::Erase(Arena& arena) { Erase(std::exchange(arena.record, 0)); }

void Journal::Put(Share& share) {
  if (!keeps()) return;
  record::Share fixed{};
  fixed.id = Number(share.facts->id);
  fixed.generation = share.facts->generation;
  fixed.arena = Number(share.arena->id());
  fixed.offset = share.offset;
  fixed.size = share.size;
  fixed.maker = Number(share.maker);
  fixed.maker_process_id = share.maker_process_id;
  fixed.request = share.request;
  fixed.root = share.root == nullptr ? 0 : Number(share.root->facts->id);
  fixed.born = NsOf(share.born);
  fixed.expires = NsOf(share.expires);
  fixed.orphan_until = NsOf(share.orphan_until);
  fixed.maker_uid = share.maker_uid;
  const auto flag = [&](bool set, record::ShareFlag which) {
    fixed.flags = static_cast<uint16_t>(fixed.flags | (set ? which : 0));
  };
  flag(share.facts->unnamed, record::kUnnamed);
  flag(share.withdrawn, record::kWithdrawn);
  flag(!share.fence.done(), record::kPending);
  flag(share.queued > 0, record::kQueued);
  flag(share.kept_in != nullptr, record::kKept);
  const std::string_view name = Fit(share.facts->name, fixed.name_bytes);
  const std::string_view description = Fit(share.facts->description, fixed.description_bytes);
  const std::string_view note = Fit(share.note, fixed.note_bytes);
  const std::string_view client =
      Fit(share.maker_client == nullptr ? std::string_view() : *share.maker_client, fixed.client_bytes);
  record::Sent sent{};
  if (const SentFacts* const facts = share.facts->sent.get(); facts != nullptr) {
    sent.channel = Number(share.channel);
    sent.sending = Number(share.sent_by);
    sent.sequence = facts->sequence;
    sent.stream = facts->stream;
    sent.time_ns = facts->time_ns;
  }
  if (share.kept_in != nullptr && share.kept_in->pages() != nullptr) {
    sent.direct_channel = share.kept_in->pages()->number();
  }
  sent.bit = share.kept_bit;
  const bool has_more = share.facts->sent != nullptr || share.kept_in != nullptr;
  const std::string_view more = has_more ? BytesOf(sent) : std::string_view();
  share.record = file_->Replace(share.record, record::kShare, {BytesOf(fixed), name, description, note, client, more});
}

void Journal::Erase(Share& share) { Erase(std::exchange(share.record, 0)); }

void Journal::Put(Session& session) {
  if (!keeps()) return;
  const Peer& peer = session.peer;
  record::Session fixed{};
  fixed.id = Number(session.id);
  fixed.born = NsOf(session.born);
  fixed.token = session.token;
  fixed.uid = peer.uid;
  fixed.gid = peer.gid;
  fixed.process_id = peer.process_id;
  for (const HandleKind kind : peer.kinds) fixed.kinds |= uint32_t{1} << static_cast<unsigned>(kind);
  std::string gpus;
  for (const std::string& gpu : peer.gpus) gpus.append(gpu).append("\n");
  const std::string_view client = Fit(peer.client, fixed.client_bytes);
  const std::string_view refused = Fit(peer.refused, fixed.refused_bytes);
  const std::string_view events = Fit(peer.events, fixed.events_bytes);
  const std::string_view secret = Fit(peer.token, fixed.secret_bytes);
  const std::string_view seen = Fit(gpus, fixed.gpus_bytes);
  const record::ByDoor by{static_cast<uint64_t>(peer.door)};
  const std::string_view more = peer.door == Door::kLifeline ? std::string_view() : BytesOf(by);
  session.record =
      file_->Replace(session.record, record::kSession, {BytesOf(fixed), client, refused, events, secret, seen, more});
}

void Journal::Erase(Session& session) {
  for (const Ticket& ticket : session.tickets.all()) Erase(ticket.record);
  Erase(std::exchange(session.queue_record, 0));
  Erase(std::exchange(session.record, 0));
}

Journal::Place Journal::PutLease(LeaseId lease, const Session& session, const Share& share, uint64_t request,
                                 ChannelEndId receiver) {
  const record::Lease fixed{Number(lease), Number(session.id), Number(share.facts->id), request};
  const record::Received received{Number(receiver)};
  const std::string_view more = receiver == ChannelEndId{} ? std::string_view() : BytesOf(received);
  return file_->Put(record::kLease, {BytesOf(fixed), more});
}

void Journal::Put(Channel& channel) {
  if (!keeps()) return;
  const Channel::Past& past = channel.past();
  record::Channel fixed{};
  fixed.id = Number(channel.id());
  fixed.capacity = past.terms.capacity;
  fixed.replay = past.terms.replayed();
  fixed.stream = past.stream;
  fixed.sent = past.sent;
  fixed.taken = past.taken;
  fixed.notified_receiver = past.notified_receiver;
  fixed.closed = Number(past.closed);
  fixed.dropped = channel.totals().dropped;
  fixed.received = past.received;
  fixed.last_to_receivers = past.to_receivers.last();
  fixed.last_to_senders = past.to_senders.last();
  fixed.lingers_until = NsOf(channel.lingers_until);
  fixed.ns_uid = channel.ns()->uid();
  fixed.mode = static_cast<uint8_t>(past.terms.mode);
  const auto flag = [&](bool set, record::ChannelFlag which) {
    fixed.flags = static_cast<uint8_t>(fixed.flags | (set ? which : 0));
  };
  flag(past.had_receivers, record::kHadReceivers);
  flag(past.begun, record::kBegun);
  flag(past.drained, record::kDrained);
  flag(past.missing, record::kMissing);
  flag(past.terms.drops(), record::kDropOldest);
  flag(past.terms.drop_oldest.has_value(), record::kStatesOnSlow);
  flag(past.terms.replay.has_value(), record::kStatesReplay);
  std::string notices;
  std::string times;
  AddNotices(past.to_receivers, false, &notices, &times);
  AddNotices(past.to_senders, true, &notices, &times);
  const std::string_view ns = Fit(channel.ns()->name(), fixed.ns_bytes);
  const std::string_view name = Fit(channel.name(), fixed.name_bytes);
  const std::string_view notified = Fit(notices, fixed.notices_bytes);
  channel.record = file_->Replace(channel.record, record::kChannel, {BytesOf(fixed), ns, name, notified, times});
}

void Journal::Erase(Channel& channel) { Erase(std::exchange(channel.record, 0)); }

void Journal::Put(ChannelEndId id, ChannelEnd& end) {
  if (!keeps()) return;
  const Channel::Member& member = *end.channel->FindMember(id);
  const record::ChannelEnd fixed{Number(id),
                                 Number(end.channel->id()),
                                 Number(member.session),
                                 end.request,
                                 end.seen,
                                 static_cast<uint64_t>(end.role),
                                 end.shares,
                                 end.counted};
  const record::Sender sender{end.sends};
  const record::Receiver receiver{end.received, member.passed, member.dropped, member.late};
  const std::string_view more = end.role == ChannelRole::kSender ? BytesOf(sender) : BytesOf(receiver);
  end.record = file_->Replace(end.record, record::kChannelEnd, {BytesOf(fixed), more});
}

void Journal::Put(DirectChannelRecord& direct) {
  if (!keeps()) return;
  record::DirectChannel fixed{};
  fixed.number = direct.pages->number();
  fixed.channel = Number(direct.channel);
  fixed.sender = Number(direct.sender);
  fixed.sending = Number(direct.sending);
  fixed.receiver = Number(direct.receiver);
  fixed.receiving = Number(direct.receiving);
  fixed.capacity = direct.pages->capacity();
  fixed.born = NsOf(direct.pages->born());
  fixed.sender_uid = direct.sender_uid;
  fixed.receiver_uid = direct.receiver_uid;
  const std::string_view ns = Fit(direct.ns, fixed.ns_bytes);
  direct.record = file_->Replace(direct.record, record::kDirectChannel, {BytesOf(fixed), ns});
}

void Journal::Erase(DirectChannelRecord& direct) { Erase(std::exchange(direct.record, 0)); }

Journal::Place Journal::PutReturned(const Session& session, const RangeOfArena& range) {
  if (!keeps()) return 0;
  const record::Returned fixed{Number(session.id), Number(range.arena), range.offset, range.size};
  return file_->Put(record::kReturned, {BytesOf(fixed)});
}

void Journal::Erase(Place record) {
  if (keeps()) file_->Erase(record);
}

Journal::Place Journal::PutPage(record::Kind kind, uint64_t page, const Session* session, const Namespace& ns) {
  if (!keeps()) return 0;
  record::Page fixed{};
  fixed.page = page;
  fixed.session = session == nullptr ? 0 : Number(session->id);
  fixed.ns_uid = ns.uid();
  const std::string_view name = Fit(ns.name(), fixed.ns_bytes);
  return file_->Put(kind, {BytesOf(fixed), name});
}

Journal::Place Journal::PutQueue(uint64_t page, SessionId session, const std::optional<uint32_t>& owner,
                                 std::string_view ns) {
  if (!keeps()) return 0;
  record::Page fixed{};
  fixed.page = page;
  fixed.session = Number(session);
  fixed.ns_uid = owner.value_or(0);
  fixed.has_owner = owner ? 1 : 0;
  const std::string_view name = Fit(ns, fixed.ns_bytes);
  return file_->Put(record::kQueue, {BytesOf(fixed), name});
}

Journal::Place Journal::PutTicket(SessionId session, const Ticket& ticket) {
  if (!keeps()) return 0;
  const record::Ticket fixed{ticket.token, Number(session), Number(ticket.arena), NsOf(ticket.deadline),
                             static_cast<uint64_t>(ticket.access)};
  return file_->Put(record::kTicket, {BytesOf(fixed)});
}

Journal::Place Journal::PutQuota(uint32_t uid, std::string_view ns, uint64_t bytes) {
  if (!keeps()) return 0;
  record::Quota fixed{};
  fixed.bytes = bytes;
  fixed.ns_uid = uid;
  const std::string_view name = Fit(ns, fixed.ns_bytes);
  return file_->Put(record::kQuota, {BytesOf(fixed), name});
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
