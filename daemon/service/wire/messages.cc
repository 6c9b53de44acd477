// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/messages.h"

#include <chrono>

#include "daemon/service/wire/born/fill_born.h"

namespace arraybridge::daemon {
namespace {

uint64_t Milliseconds(std::chrono::milliseconds duration) { return static_cast<uint64_t>(duration.count()); }

}  // namespace

void Fill(v1::Device* message, const Device& device) {
  message->set_type(device.type);
  message->set_id(device.id);
  if (!device.uuid.empty()) message->set_uuid(device.uuid);
}

void Fill(v1::Handle* message, const Handle& handle) {
  message->set_kind(static_cast<v1::HandleKind>(handle.kind));
  message->set_arena(handle.arena);
  message->set_generation(handle.generation);
  message->set_offset(handle.offset);
  message->set_size(handle.size);
  message->set_arena_size(handle.arena_size);
  Fill(message->mutable_device(), handle.device);
  if (!handle.opaque.empty()) message->set_opaque(handle.opaque);
}

void Fill(v1::Limits* message, const Config& config) {
  const Limits& limits = config.limits;
  message->set_frame_bytes_max(limits.frame_bytes_max);
  message->set_name_bytes_max(limits.name_bytes_max);
  message->set_arrays_per_share_max(limits.arrays_per_share_max);
  message->set_rank_max(limits.rank_max);
  message->set_spec_bytes_max(limits.spec_bytes_max);
  message->set_structure_bytes_max(limits.structure_bytes_max);
  message->set_metadata_bytes_max(limits.metadata_bytes_max);
  message->set_leases_per_session_max(limits.leases_per_session);
  message->set_names_per_request_max(limits.names_per_request);
  message->set_request_timeout_max_ms(Milliseconds(limits.request_timeout_max));
  message->set_shares_per_namespace_max(limits.shares_per_namespace);
  message->set_arena_idle_ms(Milliseconds(config.arena_idle));
  message->set_ticket_lifetime_ms(Milliseconds(limits.ticket_lifetime));
  message->set_own_arena_bytes_min(config.own_arena_bytes_min);
  message->set_note_bytes_max(limits.note_bytes_max);
}

void Fill(v1::DeviceInfo* message, const DeviceFacts& device) {
  Fill(message->mutable_device(), device.device);
  for (const HandleKind kind : device.kinds) message->add_kinds(static_cast<v1::HandleKind>(kind));
  message->set_capacity_bytes(device.capacity_bytes);
  message->set_allocated_bytes(device.allocated_bytes);
  message->set_cached_bytes(device.cached_bytes);
  for (const DeviceFacts::Refused& refused : device.refused) {
    v1::RefusedKind* kind = message->add_refused();
    kind->set_kind(static_cast<v1::HandleKind>(refused.kind));
    kind->set_why(refused.why);
    kind->set_cause(static_cast<v1::RefusalCause>(refused.cause));
  }
  message->set_out_of_service(device.out_of_service);
  message->set_quarantined_bytes(device.quarantined_bytes);
}

namespace {

v1::Holder HolderOf(const Life& life, const DescriptorStore::Usage& usage) {
  if (!life.stores) return v1::HOLDER_FULL;
  if (usage.holder_has_ended) return v1::HOLDER_ENDED;
  return usage.holder == DescriptorStore::Holder::kKeeper ? v1::HOLDER_KEEPER : v1::HOLDER_SERVICE_MANAGER;
}

}  // namespace

void Fill(v1::Life* message, const Life& life) {
  const Recovered& recovered = life.recovered;
  message->set_number(recovered.life);
  message->set_began_unix_s(static_cast<uint64_t>(life.began_unix_s));
  const bool is_first = recovered.began_unix_s == 0;
  message->set_first_began_unix_s(static_cast<uint64_t>(is_first ? life.began_unix_s : recovered.began_unix_s));
  message->set_last_end(life.last_end);
  message->set_recovered_shares(recovered.shares);
  message->set_recovered_sessions(recovered.session_count());
  message->set_recovered_bytes(recovered.bytes);
  message->set_lost_shares(recovered.lost_shares);
  message->set_lost_shares_total(recovered.lost_shares_total);
  message->set_damaged_records(recovered.damaged_records);
  message->set_holder(v1::HOLDER_NONE);
  if (life.store == nullptr) return;
  const DescriptorStore::Usage usage = life.store->usage();
  message->set_holder(HolderOf(life, usage));
  message->set_store_entries(usage.entries);
  message->set_store_entries_max(usage.entries_max);
  message->set_store_name_bytes(usage.name_bytes);
  message->set_store_name_bytes_max(usage.name_bytes_max);
  message->set_store_refused_total(usage.refused_total);
}

void Fill(v1::Share* message, const ShareFacts& facts, const Handle& handle, Immutability immutability) {
  // The daemon wrote these bytes; if they were not a Share, the other fields would still be valid.
  static_cast<void>(message->ParseFromString(facts.description));
  message->set_id(Number(facts.id));
  message->set_namespace_(facts.ns);
  message->set_name(facts.name);
  message->set_generation(facts.generation);
  Fill(message->mutable_handle(), handle);
  message->set_immutability(ToMessage(immutability));
  message->set_unnamed(facts.unnamed);
}

void Fill(v1::ShareInfo* message, const ShareRow& row) {
  Fill(message->mutable_share(), *row.facts, row.handle, row.immutability);
  message->set_maker(Number(row.maker));
  message->set_leases(row.leases);
  message->set_age_ms(Milliseconds(row.age));
  message->set_maker_process_id(row.maker_process_id);
  message->set_expires(row.expires_in.has_value());
  message->set_expires_in_ms(static_cast<uint64_t>(row.expires_in.value_or(std::chrono::milliseconds(0)).count()));
  if (row.maker_uid) message->set_maker_uid(*row.maker_uid);
  message->set_goes_with_maker(row.goes_with_maker);
  message->set_forward_of(Number(row.forward_of));
  // Only clients that lease the share get the event itself.
  if (!row.fence_done) message->mutable_share()->mutable_fence()->set_kind(v1::Fence::EVENT);
}

void Fill(v1::SessionInfo* message, const SessionRow& row) {
  message->set_session(Number(row.session));
  message->set_client(row.client);
  message->set_uid(row.uid);
  message->set_process_id(row.process_id);
  message->set_age_ms(Milliseconds(row.age));
  message->set_leases(row.leases);
  message->set_arenas(row.arenas);
  message->set_arena_bytes(row.arena_bytes);
  message->set_awaited(row.awaited);
  message->set_door(row.door == Door::kLifeline ? "lifeline" : "grpc");
  for (const HandleKind kind : row.kinds) message->add_kinds(static_cast<v1::HandleKind>(kind));
  if (row.born != born::Figures{}) Fill(message->mutable_born(), row.born);
}

void Fill(v1::LeaseInfo* message, const LeaseRow& row) {
  message->set_lease(Number(row.lease));
  message->set_session(Number(row.session));
  message->set_share(Number(row.facts->id));
  message->set_namespace_(row.facts->ns);
  message->set_name(row.facts->name);
  message->set_generation(row.facts->generation);
  message->set_size(row.size);
  message->set_uid(row.uid);
  message->set_process_id(row.process_id);
  Fill(message->mutable_device(), row.device);
}

void Fill(v1::NamespaceInfo* message, const NamespaceRow& row) {
  message->set_namespace_(row.ns);
  message->set_uid(row.uid);
  message->set_quota_bytes(row.quota_bytes);
  message->set_charged_bytes(row.charged_bytes);
  message->set_shares(row.shares);
  message->set_share_bytes(row.share_bytes);
  message->set_named_bytes(row.named_bytes);
  message->set_queued_bytes(row.queued_bytes);
  message->set_unowned_bytes(row.unowned_bytes);
  message->set_shared(row.uid == kSharedByUsers);
  message->set_read_only(row.read_only);
  message->set_share_lifetime_ms(Milliseconds(row.share_lifetime));
  message->set_orphan_grace_ms(Milliseconds(row.orphan_grace));
  message->set_withdraws_on_exit(row.withdraws_on_exit);
}

void Fill(v1::ChannelInfo* message, const ChannelRow& row) {
  message->set_namespace_(row.ns);
  message->set_name(row.name);
  message->set_uid(row.uid);
  message->set_shared(row.uid == kSharedByUsers);
  message->set_capacity(row.capacity);
  message->set_queued(row.queued);
  message->set_queued_bytes(row.queued_bytes);
  message->set_senders(row.senders);
  message->set_receivers(row.receivers);
  message->set_direct(row.direct);
  message->set_stream(row.stream);
  message->set_oldest_ms(Milliseconds(row.oldest));
  message->set_mode(static_cast<v1::ChannelMode>(row.terms.mode));
  message->set_drop_oldest(row.terms.drops());
  message->set_replay(row.terms.replayed());
  message->set_sent(row.totals.sent);
  message->set_received(row.totals.received);
  message->set_dropped(row.totals.dropped);
  for (const ChannelRow::End& end : row.ends) {
    v1::ChannelEndInfo* const its = message->add_ends();
    its->set_sends(end.role == ChannelRole::kSender);
    its->set_session(Number(end.session));
    its->set_process_id(end.process_id);
    if (end.client != nullptr) its->set_client(*end.client);
    its->set_shares(end.shares);
    its->set_waiting(end.waiting);
    its->set_dropped(end.dropped);
    its->set_closed_ms(Milliseconds(end.closed));
  }
}

void Fill(v1::GetStatsResponse* message, const Snapshot& snapshot) {
  message->set_sessions(snapshot.sessions);
  message->set_leases(snapshot.leases);
  message->set_shares(snapshot.shares);
  message->set_unread_shares(snapshot.unread_shares);
  message->set_channel_sent_total(snapshot.channel_totals.sent);
  message->set_channel_received_total(snapshot.channel_totals.received);
  message->set_channel_dropped_total(snapshot.channel_totals.dropped);
  message->set_withdrawn_shares(snapshot.withdrawn_shares);
  message->set_arenas(snapshot.arenas);
  message->set_charged_bytes(snapshot.charged_bytes);
  message->set_tickets(snapshot.tickets);
  message->set_dying_arenas(snapshot.dying_arenas);
  message->set_sessions_total(snapshot.sessions_total);
  message->set_publishes_total(snapshot.publishes_total);
  message->set_forwards_total(snapshot.forwards_total);
  message->set_acquires_total(snapshot.acquires_total);
  message->set_hazard_slots(snapshot.hazard_slots);
  message->set_pinned_bytes(snapshot.pinned_bytes);
  message->set_channels(snapshot.channels);
  message->set_queued_shares(snapshot.queued_shares);
  message->set_pending_fences(snapshot.pending_fences);
  message->set_lost_fences_total(snapshot.lost_fences_total);
  message->set_watchers(snapshot.watchers);
  message->set_events_dropped_total(snapshot.events_dropped_total);
}

wire::Event ToWire(const Event& event) {
  wire::Event message{.time_ns = event.time_ns,
                      .kind = static_cast<wire::EventKind>(event.kind),
                      .namespace_ = event.ns,
                      .name = event.name,
                      .share = Number(event.share),
                      .generation = event.generation,
                      .session = Number(event.session),
                      .process_id = event.process_id,
                      .uid = event.uid,
                      .bytes = event.bytes,
                      .code = static_cast<uint32_t>(event.code),
                      .reason = event.reason,
                      .verb = event.verb,
                      .note = event.note};
  if (event.bytes > 0) message.device = wire::Device{event.device.type, event.device.id, event.device.uuid};
  return message;
}

void Fill(v1::Visit* message, const Visit& visit) {
  message->set_session(Number(visit.who.session));
  message->set_client(*visit.who.client);
  message->set_process_id(visit.who.process_id);
  message->set_uid(visit.who.uid);
  message->set_note(visit.note);
  message->set_first_ns(visit.first_ns);
  message->set_last_ns(visit.last_ns);
  message->set_count(visit.count);
}

void Fill(v1::Offer* message, const OfferRow& offer) {
  message->set_session(Number(offer.who.session));
  message->set_client(*offer.who.client);
  message->set_process_id(offer.who.process_id);
  message->set_uid(offer.who.uid);
  message->set_why_not(offer.why_not);
  message->set_waits(offer.waits);
  message->set_gpus_unsaid(offer.gpus_unknown);
}

void Fill(v1::InspectResponse* message, const Inspected& inspected) {
  Fill(message->mutable_share(), inspected.row);
  Fill(message->mutable_maker(), inspected.maker);
  for (const Visit& visit : inspected.readers) Fill(message->add_readers(), visit);
  message->set_readers_forgotten(inspected.forgotten);
  v1::DeviceInfo device;
  Fill(&device, inspected.device);
  message->mutable_refused()->Swap(device.mutable_refused());
  message->mutable_kinds()->Swap(device.mutable_kinds());
}

v1::Immutability ToMessage(Immutability immutability) { return static_cast<v1::Immutability>(immutability); }

// An empty message means the host, because proto3 omits fields that are 0.
Device DeviceOf(const std::optional<wire::Device>& message) {
  if (!message) return Device{};
  return Device{message->type == 0 ? kDeviceCpu : message->type, message->id, std::string(message->uuid)};
}

ShareKey KeyOf(const wire::ShareRef& ref) {
  return {ref.name.value_or(std::string_view{}), ShareId{ref.id.value_or(0)}, ref.generation, ref.newer_than};
}

std::vector<ShareKey> KeysOf(std::span<const wire::ShareRef> refs) {
  std::vector<ShareKey> keys;
  keys.reserve(refs.size());
  for (const wire::ShareRef& ref : refs) keys.push_back(KeyOf(ref));
  return keys;
}

ShareKey FromMessage(const v1::ShareRef& ref) {
  return {ref.name(), ShareId{ref.id()}, ref.generation(), ref.newer_than()};
}

std::vector<ShareKey> FromMessage(const google::protobuf::RepeatedPtrField<v1::ShareRef>& refs) {
  std::vector<ShareKey> keys;
  keys.reserve(static_cast<size_t>(refs.size()));
  for (const v1::ShareRef& ref : refs) keys.push_back(FromMessage(ref));
  return keys;
}

}  // namespace arraybridge::daemon
