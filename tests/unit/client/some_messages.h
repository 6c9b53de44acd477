// SPDX-License-Identifier: Apache-2.0
// One example of each answer of a broker, with a value in every field.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/wire/codec.h"

namespace arraybridge {

template <class Message>
Message Parsed(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.ByteSizeLong(), bytes.size()) << "no unknown or doubled fields";
  return message;
}

inline v1::Share SomeShare() {
  v1::Share share;
  share.set_id(7);
  share.set_namespace_("team");
  share.set_name("frame");
  share.set_generation(9);
  auto* handle = share.mutable_handle();
  handle->set_kind(v1::HANDLE_KIND_MEMFD);
  handle->set_arena(3);
  handle->set_generation(0xFFFFFFFFFFFFFFFF);
  handle->set_offset(512);
  handle->set_size(4096);
  handle->set_arena_size(1 << 21);
  handle->mutable_device()->set_type(1);
  auto* spec = share.mutable_specs()->add_arrays();
  spec->set_code(2);
  spec->set_bits(32);
  spec->set_lanes(1);
  spec->set_dtype("float32");
  spec->add_shape(4);
  spec->add_shape(256);
  spec->add_strides(-256);
  spec->add_strides(1);
  spec->set_offset(256);
  spec->set_size(4096);
  share.set_immutability(v1::IMMUTABILITY_ENFORCED);
  share.mutable_fence()->set_kind(v1::Fence::DONE);
  share.set_structure("tree");
  share.set_metadata(std::string("\0\x01", 2));
  share.set_unnamed(true);
  return share;
}

inline void ExpectSomeShare(const Share& share) {
  EXPECT_EQ(share.id, 7u);
  EXPECT_EQ(share.ns, "team");
  EXPECT_EQ(share.name, "frame");
  EXPECT_EQ(share.generation, 9u);
  EXPECT_EQ(share.size, 4096u);
  EXPECT_EQ(share.device, Device{});
  ASSERT_EQ(share.arrays.size(), 1u);
  const ArraySpec expected{
      .type = {2, 32, 1}, .dtype = "float32", .shape = {4, 256}, .strides = {-256, 1}, .offset = 256};
  EXPECT_EQ(share.arrays[0], expected);
  EXPECT_EQ(share.immutability, Immutability::kEnforced);
  EXPECT_EQ(share.structure, "tree");
  EXPECT_EQ(share.metadata, std::string("\0\x01", 2));
  EXPECT_TRUE(share.unnamed);
}

inline v1::GetServerInfoResponse SomeServer() {
  v1::GetServerInfoResponse server;
  server.set_version("1.2.3");
  server.set_broker_id("0123456789abcdef");
  server.set_protocol_min(1);
  server.set_protocol_max(4);
  server.set_boot_id("boot");
  server.set_uptime_ms(99);
  auto* limits = server.mutable_limits();
  limits->set_frame_bytes_max(65536);
  limits->set_name_bytes_max(2);
  limits->set_arrays_per_share_max(3);
  limits->set_rank_max(4);
  limits->set_spec_bytes_max(5);
  limits->set_structure_bytes_max(6);
  limits->set_names_per_request_max(256);
  limits->set_request_timeout_max_ms(60000);
  limits->set_arena_idle_ms(5000);
  limits->set_own_arena_bytes_min(1 << 24);
  server.add_devices()->set_capacity_bytes(1);
  server.add_capabilities("x");
  return server;
}

inline v1::AcquireResponse SomeAcquired() {
  v1::AcquireResponse message;
  auto* leased = message.add_shares();
  leased->set_lease(11);
  *leased->mutable_share() = SomeShare();
  message.set_descriptor_arena(3);
  return message;
}

// The last share of an AcquireResponse, if all shares decode.
inline Result<codec::DescribedShare> DecodeShares(std::string_view message) {
  const auto grants = codec::DecodeGrants(message);
  if (!grants.ok()) return grants.status();
  Result<codec::DescribedShare> last = NotFound("no share");
  for (const auto& grant : grants->shares) {
    last = codec::DecodeShare(grant.share);
    if (!last.ok()) return last;
  }
  return last;
}

inline v1::ListResponse SomeList() {
  v1::ListResponse message;
  auto* info = message.add_shares();
  *info->mutable_share() = SomeShare();
  info->set_maker(1);
  info->set_leases(2);
  info->set_age_ms(3);
  info->set_maker_process_id(4);
  message.set_next_page_token("more");
  return message;
}

inline v1::GetStatsResponse SomeStats() {
  v1::GetStatsResponse message;
  message.set_sessions(1);
  message.set_leases(2);
  message.set_shares(3);
  message.set_withdrawn_shares(4);
  message.set_arenas(5);
  message.set_charged_bytes(6);
  message.set_tickets(7);
  message.set_waiting(8);
  message.set_dying_arenas(9);
  for (int i = 0; i < 2; ++i) {
    auto* device = message.add_devices();
    device->set_capacity_bytes(100);
    device->set_allocated_bytes(10);
    device->set_cached_bytes(1);
  }
  message.set_sessions_total(11);
  message.set_publishes_total(12);
  message.set_acquires_total(13);
  message.set_refusals_total(14);
  message.set_sessions_cut_total(15);
  message.set_hazard_slots(16);
  message.set_pinned_bytes(17);
  message.set_channels(20);
  message.set_queued_shares(21);
  message.set_channel_sent_total(25);
  message.set_channel_received_total(26);
  message.set_channel_dropped_total(27);
  message.set_watchers(22);
  message.set_events_dropped_total(23);
  return message;
}

inline v1::WatchResponse SomeEvents() {
  v1::WatchResponse message;
  message.set_watch(5);
  auto* event = message.add_events();
  event->set_time_ns(0x123456789abcdef0);
  event->set_kind(v1::EVENT_KIND_QUOTA);
  event->set_namespace_("team");
  event->set_name("frame");
  event->set_share(1);
  event->set_generation(2);
  event->set_session(3);
  event->set_process_id(4);
  event->set_uid(5);
  event->set_bytes(6);
  event->mutable_device()->set_type(2);
  event->mutable_device()->set_uuid("GPU-1");
  event->set_code(8);
  event->set_reason("QUOTA_EXCEEDED");
  event->set_verb("Allocate");
  event->set_note("full");
  message.add_events()->set_kind(static_cast<v1::EventKind>(99));
  return message;
}

}  // namespace arraybridge
