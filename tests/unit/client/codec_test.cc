// SPDX-License-Identifier: Apache-2.0
// Compares every message of the client with libprotobuf, which the daemon uses: each side reads the other's encoding.
#include "client/wire/codec.h"

#include <gtest/gtest.h>

#include "arraybridge/v1/broker.pb.h"
#include "tests/unit/client/some_messages.h"

namespace arraybridge {
namespace {

TEST(CodecTest, OpenSession) {
  const auto sent = Parsed<v1::OpenSessionRequest>(codec::Encode(codec::OpenSession{
      "me",
      42,
      {{HandleKind::kMemfd, HandleKind::kCudaVmm, HandleKind::kCudaIpc}, "boot", 7, {"GPU-a", "GPU-b"}, 12080},
      "secret"}));
  EXPECT_EQ(sent.client(), "me");
  EXPECT_EQ(sent.token(), "secret");
  EXPECT_EQ(sent.process_id(), 42u);
  EXPECT_EQ(sent.protocol_min(), kProtocolVersion);
  EXPECT_EQ(sent.protocol_max(), kProtocolVersion);
  ASSERT_EQ(sent.capabilities().kinds_size(), 3);
  EXPECT_EQ(sent.capabilities().kinds(0), v1::HANDLE_KIND_MEMFD);
  EXPECT_EQ(sent.capabilities().kinds(1), v1::HANDLE_KIND_CUDA_VMM);
  EXPECT_EQ(sent.capabilities().kinds(2), v1::HANDLE_KIND_CUDA_IPC);
  EXPECT_EQ(sent.capabilities().boot_id(), "boot");
  EXPECT_EQ(sent.capabilities().pid_namespace(), 7u);
  ASSERT_EQ(sent.capabilities().gpu_uuids_size(), 2);
  EXPECT_EQ(sent.capabilities().gpu_uuids(1), "GPU-b");
  EXPECT_EQ(sent.capabilities().cuda_driver_version(), 12080u);

  v1::OpenSessionResponse message;
  message.set_session(5);
  message.set_token("secret");
  message.set_protocol(1);
  *message.mutable_server() = SomeServer();
  const auto opened = codec::DecodeOpened(message.SerializeAsString());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->session, 5u);
  EXPECT_EQ(opened->protocol, 1u);
  EXPECT_EQ(opened->server.info.broker_id, "0123456789abcdef");
  EXPECT_EQ(opened->server.info.version, "1.2.3");
  EXPECT_EQ(opened->server.info.protocol_max, 4u);
  EXPECT_EQ(opened->server.info.uptime_ms, 99u);
  EXPECT_EQ(opened->server.limits.names_per_request_max, 256u);
  EXPECT_EQ(opened->server.limits.request_timeout_max_ms, 60000u);
  EXPECT_EQ(opened->server.limits.arena_idle_ms, 5000u);
  EXPECT_EQ(opened->server.limits.own_arena_bytes_min, 1u << 24);
  const ShareLimits& share = opened->server.limits.share;
  EXPECT_EQ(share.frame_bytes_max, 65536u);
  EXPECT_EQ(share.name_bytes_max, 2u);
  EXPECT_EQ(share.arrays_per_share_max, 3u);
  EXPECT_EQ(share.rank_max, 4u);
  EXPECT_EQ(share.spec_bytes_max, 5u);
  EXPECT_EQ(share.structure_bytes_max, 6u);
  EXPECT_EQ(share.metadata_bytes_max, ShareLimits::kNone) << "the broker said nothing";
}

TEST(CodecTest, AllocateMappedExport) {
  const auto sent = Parsed<v1::AllocateRequest>(
      codec::Encode(codec::Allocate{.ns = "n", .device = Device{}, .size = UINT64_MAX, .timeout_ms = 3}));
  EXPECT_EQ(sent.namespace_(), "n");
  EXPECT_EQ(sent.size(), UINT64_MAX);
  EXPECT_EQ(sent.device().type(), 1);
  EXPECT_EQ(sent.timeout_ms(), 3u);
  EXPECT_EQ(Parsed<v1::MappedRequest>(codec::EncodeMapped(9)).arena(), 9u);
  EXPECT_EQ(Parsed<v1::ExportRequest>(codec::EncodeExport(8, 7)).arena_generation(), 7u);

  v1::AllocateResponse message;
  AddReturned(message);
  auto without = codec::DecodeAllocated(message.SerializeAsString());
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->has_handle);
  EXPECT_EQ(without->returned, kReturned);
  *message.mutable_handle() = SomeShare().handle();
  auto with = codec::DecodeAllocated(message.SerializeAsString());
  ASSERT_TRUE(with.ok() && with->has_handle);
  EXPECT_EQ(with->handle.arena_size, 1u << 21);
  EXPECT_EQ(with->handle.generation, UINT64_MAX);
  v1::ExportResponse exported;
  EXPECT_EQ(codec::DecodeExported(exported.SerializeAsString()).status().code(), Code::kDataLoss);
  *exported.mutable_handle() = SomeShare().handle();
  EXPECT_EQ(codec::DecodeExported(exported.SerializeAsString())->arena, 3u);
}

TEST(CodecTest, Publish) {
  codec::Publish request;
  request.ns = "n";
  request.name = "frame";
  request.arena = 1;
  request.arena_generation = 2;
  request.offset = 256;
  request.size = 4096;
  request.arrays.push_back(
      {.spec = {.type = {2, 32, 1}, .dtype = "float32", .shape = {4, 256}, .strides = {256, 1}, .offset = 512},
       .size = 4096});
  request.arrays.push_back({.spec = {.type = {6, 8, 1}, .dtype = "bool", .shape = {}, .strides = {}}, .size = 1});
  request.replace = request.sealed = true;
  request.structure = "s";
  request.metadata = "m";
  const auto sent = Parsed<v1::PublishRequest>(codec::Encode(request));
  EXPECT_EQ(sent.name(), "frame");
  EXPECT_EQ(sent.arena_generation(), 2u);
  EXPECT_TRUE(sent.replace() && sent.sealed());
  EXPECT_EQ(sent.structure() + sent.metadata(), "sm");
  ASSERT_EQ(sent.specs().arrays_size(), 2);
  EXPECT_EQ(sent.specs().arrays(0).shape(1), 256);
  EXPECT_EQ(sent.specs().arrays(0).strides(0), 256);
  EXPECT_EQ(sent.specs().arrays(0).offset(), 512u);
  EXPECT_EQ(sent.specs().arrays(0).lanes(), 1u);
  EXPECT_EQ(sent.specs().arrays(1).shape_size(), 0);
  request.arrays.push_back({.spec = {.type = {0, 8, 1}, .dtype = "int8", .shape = {0}, .strides = {}}, .size = 0});
  const auto more = Parsed<v1::PublishRequest>(codec::Encode(request));
  EXPECT_EQ(codec::SpecBytes(request.arrays), more.specs().ByteSizeLong()) << "the broker counts otherwise";

  v1::PublishResponse message;
  message.set_share(4);
  message.set_name("given");
  message.set_generation(5);
  message.set_immutability(v1::IMMUTABILITY_BY_CONTRACT);
  AddReturned(message);
  const auto published = codec::DecodePublished(message.SerializeAsString());
  ASSERT_TRUE(published.ok());
  EXPECT_EQ(published->share, 4u);
  EXPECT_EQ(published->name, "given");
  EXPECT_EQ(published->generation, 5u);
  EXPECT_EQ(published->immutability, Immutability::kByContract);
  EXPECT_EQ(published->returned, kReturned);
}

TEST(CodecTest, WhatAClientOpensIsSaidWithItsSessionAndLater) {
  codec::Capabilities capabilities;
  capabilities.kinds = {HandleKind::kMemfd, HandleKind::kCudaVmm};
  capabilities.gpu_uuids = {"GPU-1", "MIG-2"};
  capabilities.cuda_driver_version = 13000;
  capabilities.wsl = capabilities.tegra = true;
  codec::Release release;
  release.capabilities = capabilities;
  EXPECT_FALSE(release.empty());
  const auto opened = Parsed<v1::OpenSessionRequest>(codec::Encode(codec::OpenSession{"me", 1, capabilities}));
  const auto later = Parsed<v1::ReleaseRequest>(codec::Encode(release));
  for (const v1::ClientCapabilities* said : {&opened.capabilities(), &later.capabilities()}) {
    EXPECT_EQ(said->kinds_size(), 2);
    EXPECT_EQ(said->gpu_uuids(1), "MIG-2");
    EXPECT_EQ(said->cuda_driver_version(), 13000u);
    EXPECT_TRUE(said->wsl() && said->tegra());
  }
}

TEST(CodecTest, AcquireWithdrawReleaseList) {
  const std::vector<ShareRef> refs{{.name = "a"}, {.name = "", .id = 5, .generation = 6}};
  const auto acquire = Parsed<v1::AcquireRequest>(codec::EncodeAcquire("n", refs, 17));
  ASSERT_EQ(acquire.shares_size(), 2);
  EXPECT_EQ(acquire.shares(0).name(), "a");
  EXPECT_EQ(acquire.shares(1).id(), 5u);
  EXPECT_EQ(acquire.shares(1).generation(), 6u);
  EXPECT_EQ(acquire.timeout_ms(), 17u);
  EXPECT_EQ(acquire.fence_timeout_ms(), 0u);
  const auto impatient = codec::EncodeAcquire("n", refs, 0, false, {}, 250);
  EXPECT_EQ(Parsed<v1::AcquireRequest>(impatient).fence_timeout_ms(), 250u);
  EXPECT_EQ(Parsed<v1::WithdrawRequest>(codec::EncodeWithdraw("n", refs)).shares_size(), 2);
  const auto release =
      Parsed<v1::ReleaseRequest>(codec::Encode(codec::Release{{1, 2}, {3}, {UINT64_MAX}, true, {4}, {5}}));
  EXPECT_EQ(release.leases_size(), 2);
  EXPECT_EQ(release.arenas(0), 3u);
  EXPECT_EQ(release.unmapped(0), UINT64_MAX);
  EXPECT_TRUE(release.hazards_cleared());
  EXPECT_EQ(release.done(0), 4u);
  EXPECT_EQ(release.lost(0), 5u);
  v1::ReleaseResponse fences;
  fences.add_awaited(4);
  fences.add_awaited(UINT64_MAX);
  EXPECT_EQ(codec::DecodeReleased(fences.SerializeAsString())->awaited, (std::vector<uint64_t>{4, UINT64_MAX}));
  EXPECT_EQ(Parsed<v1::ListRequest>(codec::EncodeList("n", "p", "t")).name_prefix(), "p");

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
  v1::ReleaseResponse released;
  released.set_released(3);
  AddReturned(released);
  EXPECT_EQ(codec::DecodeWithdrawn(released.SerializeAsString())->returned, kReturned);
}

TEST(CodecTest, ReadingWithoutCalls) {
  const auto table = Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kCatalogue));
  EXPECT_EQ(table.namespace_(), "n");
  EXPECT_EQ(table.part(), v1::BrowseRequest::CATALOGUE);
  EXPECT_EQ(Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kHazardPage)).part(),
            v1::BrowseRequest::HAZARD_PAGE);
  EXPECT_EQ(Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kQueue)).part(),
            v1::BrowseRequest::QUEUE);
  const auto direct = Parsed<v1::BrowseRequest>(codec::EncodeBrowseDirect(7));
  EXPECT_EQ(direct.part(), v1::BrowseRequest::DIRECT_CHANNEL);
  EXPECT_EQ(direct.channel(), 7u);
  const auto queue = Parsed<v1::MappedRequest>(codec::EncodeQueueMapped());
  EXPECT_EQ(queue.arena(), 0u);
  EXPECT_TRUE(queue.queue());
  const auto mapped = Parsed<v1::MappedRequest>(codec::EncodeHazardPageMapped("n"));
  EXPECT_EQ(mapped.arena(), 0u);
  EXPECT_EQ(mapped.hazard_page_of(), "n");
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

TEST(CodecTest, Channels) {
  const auto open = Parsed<v1::OpenChannelRequest>(
      codec::EncodeOpenChannel("n", "frames", Channel::Role::kReceiver, {.capacity = 7}));
  EXPECT_EQ(open.namespace_(), "n");
  EXPECT_EQ(open.name(), "frames");
  EXPECT_EQ(open.role(), v1::OpenChannelRequest::RECEIVER);
  EXPECT_EQ(open.capacity(), 7u);
  const auto sender = Parsed<v1::OpenChannelRequest>(codec::EncodeOpenChannel("n", "f", Channel::Role::kSender, {}));
  EXPECT_EQ(sender.role(), v1::OpenChannelRequest::SENDER);
  v1::OpenChannelResponse answer;
  answer.set_channel(8);
  answer.set_capacity(9);
  const auto opened = codec::DecodeOpenedChannel(answer.SerializeAsString());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->channel, 8u);
  EXPECT_EQ(opened->capacity, 9u);
  const auto close = Parsed<v1::CloseChannelRequest>(codec::EncodeCloseChannel(8, false));
  EXPECT_EQ(close.channel(), 8u);
  EXPECT_TRUE(close.abandoned());
  EXPECT_FALSE(Parsed<v1::CloseChannelRequest>(codec::EncodeCloseChannel(8, true)).abandoned());
  const auto receive = Parsed<v1::ReceiveRequest>(codec::EncodeReceive(8, 10, 3));
  EXPECT_EQ(receive.channel(), 8u);
  EXPECT_EQ(receive.timeout_ms(), 10u);
  EXPECT_EQ(receive.seen_notice(), 3u);
  codec::Publish sent;
  sent.ns = "n";
  sent.arena = sent.arena_generation = sent.offset = sent.size = 256;
  sent.channel = 8;
  sent.timeout_ms = 11;
  const auto publish = Parsed<v1::PublishRequest>(codec::Encode(sent));
  EXPECT_EQ(publish.channel(), 8u);
  EXPECT_EQ(publish.timeout_ms(), 11u);
}

TEST(CodecTest, WatchesAndNotes) {
  constexpr EventKind kinds[] = {EventKind::kPublish, EventKind::kQuota};
  const auto open = Parsed<v1::WatchRequest>(codec::EncodeOpenWatch("team", "a/", kinds));
  EXPECT_EQ(open.watch(), 0u);
  EXPECT_EQ(open.namespace_(), "team");
  EXPECT_EQ(open.name_prefix(), "a/");
  ASSERT_EQ(open.kinds_size(), 2);
  EXPECT_EQ(open.kinds(0), v1::EVENT_KIND_PUBLISH);
  EXPECT_EQ(open.kinds(1), v1::EVENT_KIND_QUOTA);
  const auto next = Parsed<v1::WatchRequest>(codec::EncodeNextEvents(7, 100));
  EXPECT_EQ(next.watch(), 7u);
  EXPECT_EQ(next.timeout_ms(), 100u);
  const auto close = Parsed<v1::WatchRequest>(codec::EncodeCloseWatch(7));
  EXPECT_EQ(close.watch(), 7u);
  EXPECT_TRUE(close.close());

  const std::string message = SomeEvents().SerializeAsString();
  EXPECT_EQ(*codec::DecodeWatch(message), 5u);
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
  EXPECT_FALSE(codec::DecodeWatch(v1::WatchResponse().SerializeAsString()).ok());

  const ShareRef ref{.name = "frame"};
  EXPECT_EQ(Parsed<v1::AcquireRequest>(codec::EncodeAcquire("team", {&ref, 1}, 0, false, "torch hand_over")).note(),
            "torch hand_over");
  codec::Publish publish;
  publish.arena = publish.arena_generation = publish.offset = publish.size = 256;
  publish.note = "numpy place";
  EXPECT_EQ(Parsed<v1::PublishRequest>(codec::Encode(publish)).note(), "numpy place");
  codec::Release release;
  release.notes.emplace_back(9, "torch place");
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
