// Every message of the client against libprotobuf, which the daemon uses: what one writes the other reads alike.
#include "client/codec.h"

#include <gtest/gtest.h>

#include <functional>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge {
namespace {

template <class Message>
Message Parsed(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.ByteSizeLong(), bytes.size()) << "no unknown or doubled fields";
  return message;
}

v1::Share SomeShare() {
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

void ExpectSomeShare(const Share& share) {
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

v1::GetServerInfoResponse SomeServer() {
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

v1::AcquireResponse SomeAcquired() {
  v1::AcquireResponse message;
  auto* leased = message.add_shares();
  leased->set_lease(11);
  *leased->mutable_share() = SomeShare();
  message.set_descriptor_arena(3);
  return message;
}

// The last share of an AcquireResponse, if all of them decode.
Result<codec::DescribedShare> DecodeShares(std::string_view message) {
  const auto grants = codec::DecodeGrants(message);
  if (!grants.ok()) return grants.status();
  Result<codec::DescribedShare> last = NotFound("no share");
  for (const auto& grant : grants->shares) {
    last = codec::DecodeShare(grant.share);
    if (!last.ok()) return last;
  }
  return last;
}

v1::ListResponse SomeList() {
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

v1::GetStatsResponse SomeStats() {
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
  message.set_holds(16);
  message.set_pinned_bytes(17);
  message.set_channels(20);
  message.set_queued_shares(21);
  message.set_watchers(22);
  message.set_events_dropped_total(23);
  return message;
}

template <class Message>
void AddReturned(Message& message) {
  auto* range = message.add_returned();
  range->set_arena(1);
  range->set_offset(256);
  range->set_size(512);
}
const std::vector<codec::Returned> kReturned{{1, 256, 512}};

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

TEST(CodecTest, AcquireWithdrawReleaseList) {
  const std::vector<ShareRef> refs{{.name = "a"}, {.name = "", .id = 5, .generation = 6}};
  const auto acquire = Parsed<v1::AcquireRequest>(codec::EncodeAcquire("n", refs, 17));
  ASSERT_EQ(acquire.shares_size(), 2);
  EXPECT_EQ(acquire.shares(0).name(), "a");
  EXPECT_EQ(acquire.shares(1).id(), 5u);
  EXPECT_EQ(acquire.shares(1).generation(), 6u);
  EXPECT_EQ(acquire.timeout_ms(), 17u);
  EXPECT_EQ(Parsed<v1::WithdrawRequest>(codec::EncodeWithdraw("n", refs)).shares_size(), 2);
  const auto release =
      Parsed<v1::ReleaseRequest>(codec::Encode(codec::Release{{1, 2}, {3}, {UINT64_MAX}, true, {4}, {5}}));
  EXPECT_EQ(release.leases_size(), 2);
  EXPECT_EQ(release.arenas(0), 3u);
  EXPECT_EQ(release.unmapped(0), UINT64_MAX);
  EXPECT_TRUE(release.holds());
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
  EXPECT_EQ(*codec::DecodeReturned(released.SerializeAsString()), kReturned);
}

TEST(CodecTest, ReadingWithoutCalls) {
  const auto table = Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kCatalogue));
  EXPECT_EQ(table.namespace_(), "n");
  EXPECT_EQ(table.part(), v1::BrowseRequest::CATALOGUE);
  EXPECT_EQ(Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kHolds)).part(),
            v1::BrowseRequest::HOLDS);
  EXPECT_EQ(Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kRing)).part(),
            v1::BrowseRequest::RING);
  EXPECT_EQ(Parsed<v1::BrowseRequest>(codec::EncodeBrowse("n", codec::BrowsePart::kBell)).part(),
            v1::BrowseRequest::BELL);
  const auto ring = Parsed<v1::MappedRequest>(codec::EncodeRingMapped());
  EXPECT_EQ(ring.arena(), 0u);
  EXPECT_TRUE(ring.ring());
  const auto mapped = Parsed<v1::MappedRequest>(codec::EncodeHoldsMapped("n"));
  EXPECT_EQ(mapped.arena(), 0u);
  EXPECT_EQ(mapped.holds_of(), "n");
  codec::Release release;
  EXPECT_TRUE(release.empty());
  release.holds = true;
  EXPECT_FALSE(release.empty());
  EXPECT_TRUE(Parsed<v1::ReleaseRequest>(codec::Encode(release)).holds());

  // What a record of a catalogue holds: a share without a handle.
  v1::Share said = SomeShare();
  said.clear_handle();
  const auto described = codec::DecodeDescription(said.SerializeAsString());
  ASSERT_TRUE(described.ok());
  EXPECT_EQ(described->share.arrays.size(), static_cast<size_t>(said.specs().arrays_size()));
  EXPECT_EQ(described->share.metadata, said.metadata());
  EXPECT_FALSE(codec::DecodeDescription("\xff").ok());
}

TEST(CodecTest, Channels) {
  const auto open =
      Parsed<v1::OpenChannelRequest>(codec::EncodeOpenChannel("n", "frames", Channel::Role::kReceiver, 7));
  EXPECT_EQ(open.namespace_(), "n");
  EXPECT_EQ(open.name(), "frames");
  EXPECT_EQ(open.role(), v1::OpenChannelRequest::RECEIVER);
  EXPECT_EQ(open.capacity(), 7u);
  const auto sender = Parsed<v1::OpenChannelRequest>(codec::EncodeOpenChannel("n", "f", Channel::Role::kSender, 0));
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
  const auto receive = Parsed<v1::ReceiveRequest>(codec::EncodeReceive(8, 10));
  EXPECT_EQ(receive.channel(), 8u);
  EXPECT_EQ(receive.timeout_ms(), 10u);
  codec::Publish sent;
  sent.ns = "n";
  sent.arena = sent.arena_generation = sent.offset = sent.size = 256;
  sent.channel = 8;
  sent.timeout_ms = 11;
  const auto publish = Parsed<v1::PublishRequest>(codec::Encode(sent));
  EXPECT_EQ(publish.channel(), 8u);
  EXPECT_EQ(publish.timeout_ms(), 11u);
}

v1::WatchResponse SomeEvents() {
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
  EXPECT_EQ(stats->holds, 16u);
  EXPECT_EQ(stats->pinned_bytes, 17u);
  EXPECT_EQ(stats->channels, 20u);
  EXPECT_EQ(stats->queued_shares, 21u);
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

// Every decoder on every prefix and every changed byte of every answer: an error or a value, never a crash.
TEST(CodecTest, TruncatedAndChangedAnswersAreErrorsAtWorst) {
  v1::OpenSessionResponse opened;
  *opened.mutable_server() = SomeServer();
  v1::AllocateResponse allocated;
  *allocated.mutable_handle() = SomeShare().handle();
  AddReturned(allocated);
  v1::PublishResponse published;
  published.set_name("x");
  AddReturned(published);
  v1::ExportResponse exported;
  *exported.mutable_handle() = SomeShare().handle();
  v1::Error error;
  error.set_message("m");
  (*error.mutable_metadata())["k"] = "v";
  const std::vector<std::string> answers{opened.SerializeAsString(),     SomeServer().SerializeAsString(),
                                         allocated.SerializeAsString(),  published.SerializeAsString(),
                                         exported.SerializeAsString(),   SomeAcquired().SerializeAsString(),
                                         SomeList().SerializeAsString(), SomeStats().SerializeAsString(),
                                         error.SerializeAsString(),      SomeEvents().SerializeAsString()};
  const std::vector<std::function<bool(std::string_view)>> decoders{
      [](auto bytes) { return codec::DecodeOpened(bytes).ok(); },
      [](auto bytes) { return codec::DecodeServer(bytes).ok(); },
      [](auto bytes) { return codec::DecodeAllocated(bytes).ok(); },
      [](auto bytes) { return codec::DecodePublished(bytes).ok(); },
      [](auto bytes) { return codec::DecodeOpenedChannel(bytes).ok(); },
      [](auto bytes) { return codec::DecodeExported(bytes).ok(); },
      [](auto bytes) { return DecodeShares(bytes).ok(); },
      [](auto bytes) { return codec::DecodeListed(bytes).ok(); },
      [](auto bytes) { return codec::DecodeStats(bytes).ok(); },
      [](auto bytes) { return codec::DecodeError(5, bytes).ok(); },
      [](auto bytes) { return codec::DecodeWatch(bytes).ok(); },
      [](auto bytes) { return codec::DecodeEvents(bytes).ok(); },
      [](auto bytes) { return codec::DecodeReturned(bytes).ok(); }};
  size_t refused = 0;
  for (const std::string& answer : answers) {
    for (const auto& decode : decoders) {
      for (size_t length = 0; length <= answer.size(); ++length) {
        refused += decode(std::string_view(answer).substr(0, length)) ? 0 : 1;
      }
      for (size_t at = 0; at < answer.size(); ++at) {
        for (const int change : {1, 2, 4, 7, 128, 255}) {
          std::string changed = answer;
          changed[at] = static_cast<char>(changed[at] ^ change);
          refused += decode(changed) ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST(CodecTest, SenselessAnswersAreRefused) {
  v1::AcquireResponse message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->mutable_handle()->set_size(1 << 21);  // offset + size > arena
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
  message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->mutable_handle()->set_kind(v1::HANDLE_KIND_UNSPECIFIED);
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
  message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->clear_handle();
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
  message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->mutable_specs()->mutable_arrays(0)->set_lanes(4);
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace arraybridge
