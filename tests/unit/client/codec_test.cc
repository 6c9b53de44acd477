// SPDX-License-Identifier: Apache-2.0
// Requests that the codec encodes as libprotobuf reads them, and answers of libprotobuf as the codec reads them.
#include "client/wire/codec.h"

#include <gtest/gtest.h>

#include "arraybridge/v1/broker.pb.h"
#include "tests/unit/client/some_messages.h"

namespace arraybridge {
namespace {

TEST(CodecTest, TheServerAndItsLimits) {
  const std::string message = SomeServer().SerializeAsString();
  const auto said = codec::Read<wire::GetServerInfoResponse>(message);
  ASSERT_TRUE(said.ok());
  const codec::Server server = codec::ServerOf(*said);
  EXPECT_EQ(server.info.broker_id, "0123456789abcdef");
  EXPECT_EQ(server.info.version, "1.2.3");
  EXPECT_EQ(server.info.protocol_max, 4u);
  EXPECT_EQ(server.info.uptime_ms, 99u);
  EXPECT_EQ(server.limits.names_per_request_max, 256u);
  EXPECT_EQ(server.limits.request_timeout_max_ms, 60000u);
  EXPECT_EQ(server.limits.arena_idle_ms, 5000u);
  EXPECT_EQ(server.limits.own_arena_bytes_min, 1u << 24);
  const ShareLimits& share = server.limits.share;
  EXPECT_EQ(share.frame_bytes_max, 65536u);
  EXPECT_EQ(share.name_bytes_max, 2u);
  EXPECT_EQ(share.arrays_per_share_max, 3u);
  EXPECT_EQ(share.rank_max, 4u);
  EXPECT_EQ(share.spec_bytes_max, 5u);
  EXPECT_EQ(share.structure_bytes_max, 6u);
  EXPECT_EQ(share.metadata_bytes_max, ShareLimits::kNone) << "the broker said nothing";
}

TEST(CodecTest, Export) {
  v1::ExportResponse exported;
  EXPECT_EQ(codec::DecodeExported(exported.SerializeAsString()).status().code(), Code::kDataLoss);
  *exported.mutable_handle() = SomeShare().handle();
  EXPECT_EQ(codec::DecodeExported(exported.SerializeAsString())->arena, 3u);
}

TEST(CodecTest, Publish) {
  codec::Publish request;
  request.message.namespace_ = "n";
  request.message.name = "frame";
  request.message.arena = 1;
  request.message.arena_generation = 2;
  request.message.offset = 256;
  request.message.size = 4096;
  request.arrays.push_back(
      {.spec = {.type = {2, 32, 1}, .dtype = "float32", .shape = {4, 256}, .strides = {256, 1}, .offset = 512},
       .size = 4096});
  request.arrays.push_back({.spec = {.type = {6, 8, 1}, .dtype = "bool", .shape = {}, .strides = {}}, .size = 1});
  request.message.replace = request.message.sealed = true;
  request.message.structure = "s";
  request.message.metadata = "m";
  request.fence.event = std::string(64, 'e');
  const auto sent = Parsed<v1::PublishRequest>(codec::Encode(request));
  EXPECT_EQ(sent.name(), "frame");
  EXPECT_EQ(sent.arena_generation(), 2u);
  EXPECT_TRUE(sent.replace() && sent.sealed());
  EXPECT_EQ(sent.structure() + sent.metadata(), "sm");
  EXPECT_EQ(sent.fence().kind(), v1::Fence::EVENT);
  EXPECT_EQ(sent.fence().opaque(), request.fence.event);
  ASSERT_EQ(sent.specs().arrays_size(), 2);
  EXPECT_EQ(sent.specs().arrays(0).shape(1), 256);
  EXPECT_EQ(sent.specs().arrays(0).strides(0), 256);
  EXPECT_EQ(sent.specs().arrays(0).offset(), 512u);
  EXPECT_EQ(sent.specs().arrays(0).lanes(), 1u);
  EXPECT_EQ(sent.specs().arrays(1).shape_size(), 0);
  request.arrays.push_back({.spec = {.type = {0, 8, 1}, .dtype = "int8", .shape = {0}, .strides = {}}, .size = 0});
  const auto more = Parsed<v1::PublishRequest>(codec::Encode(request));
  EXPECT_EQ(codec::SpecBytes(request.arrays), more.specs().ByteSizeLong()) << "the broker counts otherwise";
}

TEST(CodecTest, WhatAClientOpensIsSaidWithItsSessionAndLater) {
  codec::Capabilities capabilities;
  capabilities.kinds = {HandleKind::kMemfd, HandleKind::kCudaVmm};
  capabilities.boot_id = "boot";
  capabilities.pid_namespace = 7;
  capabilities.shm_device = 8;
  capabilities.gpu_uuids = {"GPU-1", "MIG-2"};
  capabilities.cuda_driver_version = 13000;
  capabilities.wsl = capabilities.tegra = true;
  codec::Release release;
  release.own_capabilities = capabilities;
  EXPECT_FALSE(release.empty());
  const auto opened = Parsed<v1::OpenSessionRequest>(
      wire::Encode(wire::OpenSessionRequest{.capabilities = codec::CapabilitiesOf(capabilities)}));
  const auto later = Parsed<v1::ReleaseRequest>(codec::Encode(release));
  for (const v1::ClientCapabilities* said : {&opened.capabilities(), &later.capabilities()}) {
    ASSERT_EQ(said->kinds_size(), 2);
    EXPECT_EQ(said->kinds(1), v1::HANDLE_KIND_CUDA_VMM);
    EXPECT_EQ(said->boot_id(), "boot");
    EXPECT_EQ(said->pid_namespace(), 7u);
    EXPECT_EQ(said->shm_device(), 8u);
    EXPECT_EQ(said->gpu_uuids(1), "MIG-2");
    EXPECT_EQ(said->cuda_driver_version(), 13000u);
    EXPECT_TRUE(said->wsl() && said->tegra());
  }
}

TEST(CodecTest, AcquireWithdrawReleaseList) {
  const std::vector<ShareRef> refs{{.name = "a"}, {.name = "", .id = 5, .generation = 6}};
  const auto acquire = Parsed<v1::AcquireRequest>(wire::Encode(wire::AcquireRequest{.shares = codec::RefsOf(refs)}));
  ASSERT_EQ(acquire.shares_size(), 2);
  EXPECT_EQ(acquire.shares(0).name(), "a");
  EXPECT_EQ(acquire.shares(1).id(), 5u);
  EXPECT_EQ(acquire.shares(1).generation(), 6u);
  const auto release =
      Parsed<v1::ReleaseRequest>(codec::Encode(codec::Release{{{1, 2}, {3}, {UINT64_MAX}, true, {4}, {5}}}));
  EXPECT_EQ(release.leases_size(), 2);
  EXPECT_EQ(release.arenas(0), 3u);
  EXPECT_EQ(release.unmapped(0), UINT64_MAX);
  EXPECT_TRUE(release.hazards_cleared());
  EXPECT_EQ(release.done(0), 4u);
  EXPECT_EQ(release.lost(0), 5u);

  const std::string acquired = SomeAcquired().SerializeAsString();
  const auto grants = codec::DecodeGrants(acquired);
  ASSERT_TRUE(grants.ok());
  EXPECT_EQ(grants->descriptor_arena, 3u);
  ASSERT_EQ(grants->shares.size(), 1u);
  EXPECT_EQ(grants->shares[0].lease, 11u);
  const auto described = DecodeShares(acquired);
  ASSERT_TRUE(described.ok());
  EXPECT_TRUE(described->fence.done());
  EXPECT_EQ(described->handle.offset, 512u);
  ExpectSomeShare(described->share);

  const auto listed = codec::DecodeListed(SomeList().SerializeAsString());
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->next_page_token, "more");
  ExpectSomeShare(listed->shares.at(0).share);
  EXPECT_EQ(listed->shares[0].maker_process_id, 4u);
}

TEST(CodecTest, ReadingWithoutCalls) {
  codec::Release release;
  EXPECT_TRUE(release.empty());
  release.hazards_cleared = true;
  EXPECT_FALSE(release.empty());
  EXPECT_TRUE(Parsed<v1::ReleaseRequest>(codec::Encode(release)).hazards_cleared());

  // The content of a catalogue record: a share without a handle.
  v1::Share said = SomeShare();
  said.clear_handle();
  const auto described = codec::DecodeDescription(said.SerializeAsString());
  ASSERT_TRUE(described.ok());
  EXPECT_EQ(described->share.arrays.size(), static_cast<size_t>(said.specs().arrays_size()));
  EXPECT_EQ(described->share.metadata, said.metadata());
  EXPECT_FALSE(codec::DecodeDescription("\xff").ok());
}

TEST(CodecTest, WatchesAndNotes) {
  const std::string message = SomeEvents().SerializeAsString();
  EXPECT_EQ(codec::Read<wire::WatchResponse>(message)->watch, 5u);
  const auto events = codec::DecodeEvents(message);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 2u);
  const Event& event = events->front();
  EXPECT_EQ(event.time_ns, 0x123456789abcdef0u);
  EXPECT_EQ(event.kind, EventKind::kQuota);
  EXPECT_EQ(event.ns, "team");
  EXPECT_EQ(event.name, "frame");
  EXPECT_EQ(event.share, 1u);
  EXPECT_EQ(event.generation, 2u);
  EXPECT_EQ(event.session, 3u);
  EXPECT_EQ(event.process_id, 4u);
  EXPECT_EQ(event.uid, 5u);
  EXPECT_EQ(event.bytes, 6u);
  EXPECT_EQ(event.device.type, 2);
  EXPECT_EQ(event.device.uuid, "GPU-1");
  EXPECT_EQ(event.code, Code::kResourceExhausted);
  EXPECT_EQ(event.reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(event.verb, "Allocate");
  EXPECT_EQ(event.note, "full");
  EXPECT_EQ(events->back().kind, EventKind::kUnknown);

  codec::Release release;
  release.own_notes.emplace_back(9, "torch place");
  EXPECT_FALSE(release.empty());
  const auto noted = Parsed<v1::ReleaseRequest>(codec::Encode(release));
  ASSERT_EQ(noted.notes_size(), 1);
  EXPECT_EQ(noted.notes(0).share(), 9u);
  EXPECT_EQ(noted.notes(0).note(), "torch place");
}

TEST(CodecTest, Stats) {
  const auto stats = codec::DecodeStats(SomeStats().SerializeAsString());
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->sessions, 1u);
  EXPECT_EQ(stats->dying_arenas, 9u);
  EXPECT_EQ(stats->capacity_bytes, 200u);
  EXPECT_EQ(stats->allocated_bytes, 20u);
  EXPECT_EQ(stats->cached_bytes, 2u);
  EXPECT_EQ(stats->sessions_cut_total, 15u);
  EXPECT_EQ(stats->hazard_slots, 16u);
  EXPECT_EQ(stats->pinned_bytes, 17u);
  EXPECT_EQ(stats->channels, 20u);
  EXPECT_EQ(stats->queued_shares, 21u);
  EXPECT_EQ(stats->channel_sent_total, 25u);
  EXPECT_EQ(stats->channel_received_total, 26u);
  EXPECT_EQ(stats->channel_dropped_total, 27u);
  EXPECT_EQ(stats->watchers, 22u);
  EXPECT_EQ(stats->events_dropped_total, 23u);
}

TEST(CodecTest, Errors) {
  v1::Error error;
  error.set_message("no room");
  error.set_reason("QUOTA_EXCEEDED");
  (*error.mutable_metadata())["used"] = "5";
  const Status status = codec::DecodeError(8, error.SerializeAsString());
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(), "no room");
  EXPECT_EQ(status.reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(status.metadata(), (Status::Metadata{{"used", "5"}}));
  EXPECT_EQ(codec::DecodeError(4711, "").code(), Code::kUnknown);
  EXPECT_EQ(codec::DecodeError(5, "\xff\xff").code(), Code::kNotFound);
}

}  // namespace
}  // namespace arraybridge
