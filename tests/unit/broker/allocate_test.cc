// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using AllocateTest = BrokerTest;

TEST_F(AllocateTest, GivesAWholeArenaAndChargesItsFootprint) {
  const auto session = Open();
  const auto first = Unsealed(session, 1);
  EXPECT_TRUE(first.descriptor.valid());
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(first.size, kPage);
  EXPECT_EQ(first.arena_size, kPage);
  EXPECT_EQ(first.device, kHost);
  EXPECT_EQ(Now().charged_bytes, kPage);
  const auto second = Unsealed(session, kPage + 1);
  EXPECT_NE(second.arena, first.arena);
  EXPECT_NE(second.generation, first.generation);
  EXPECT_EQ(Now().charged_bytes, 3 * kPage);
  EXPECT_EQ(Now().arenas, 2u);
}

TEST_F(AllocateTest, RefusesWhatCanNeverBeBeforeAnybodyWaits) {
  config_.namespace_quota_bytes = 8 * kPage;
  const auto session = Open();
  const auto check = [&](std::string_view ns, const Device& device, uint64_t size) {
    const Status checked = broker().CheckAllocate(session, {ns, device, size});
    EXPECT_EQ(broker().Allocate(session, {ns, device, size}).status().reason(), checked.reason());
    return checked;
  };
  EXPECT_THAT(check("", kHost, 0), FailsWith(Code::kInvalidArgument, "BAD_SIZE"));
  EXPECT_THAT(check("a\n", kHost, 1), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
  EXPECT_THAT(check("", Device{kDeviceCuda, 0, {}}, 1), FailsWith(Code::kInvalidArgument, "UNKNOWN_DEVICE"));
  EXPECT_THAT(check("", Device{kDeviceCpu, 0, "GPU-1"}, 1), FailsWith(Code::kInvalidArgument, "UNKNOWN_DEVICE"));
  EXPECT_THAT(check("", kHost, kCapacity + 1), FailsWith(Code::kResourceExhausted, "DEVICE_TOO_SMALL"));
  EXPECT_THAT(check("", kHost, 8 * kPage + 1), FailsWith(Code::kResourceExhausted, "QUOTA_TOO_SMALL"));
  EXPECT_TRUE(broker().CheckAllocate(session, {"", kHost, 8 * kPage}).ok());
  EXPECT_EQ(Now().charged_bytes, 0u);
}

TEST_F(AllocateTest, ASizeThatWouldRoundToNothingNeverFits) {
  const auto session = Open();
  EXPECT_THAT(broker().Allocate(session, {"", kHost, UINT64_MAX}),
              FailsWith(Code::kResourceExhausted, "DEVICE_TOO_SMALL"));
}

TEST_F(AllocateTest, TheQuotaIsTheNamespaces) {
  config_.namespace_quota_bytes = 2 * kPage;
  const auto session = Open();
  Unsealed(session, 2 * kPage, "x");
  const auto refused = broker().Allocate(session, {"x", kHost, 1});
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_EQ(refused.status().message(), "namespace 'x': 4096 bytes exceed the quota (8192 of 8192 in use)");
  EXPECT_TRUE(broker().Allocate(session, {"y", kHost, 1}).ok());
  EXPECT_TRUE(broker().Allocate(Open(2000), {"x", kHost, 1}).ok());  // another user's "x" is another namespace
}

TEST_F(AllocateTest, ReturnsTheChargeWhenTheBackendOrTheExportFails) {
  const auto session = Open();
  world().allocate_fails = true;
  EXPECT_THAT(broker().Allocate(session, {"", kHost, 1}), FailsWith(Code::kResourceExhausted, "DEVICE_FULL"));
  EXPECT_EQ(Now().charged_bytes, 0u);
  world().allocate_fails = false;
  world().export_fails = true;
  EXPECT_THAT(broker().Allocate(session, {"", kHost, 1}), FailsWith(Code::kResourceExhausted, "DESCRIPTORS"));
  EXPECT_EQ(Now().charged_bytes, 0u);
  EXPECT_EQ(Now().arenas, 0u);
  EXPECT_EQ(world().allocated, 0u);
}

TEST_F(AllocateTest, HasALimitOfArenasPerSession) {
  config_.limits.arenas_per_session = 2;
  const auto session = Open();
  const auto first = Unsealed(session);
  Unsealed(session);
  EXPECT_THAT(broker().CheckAllocate(session, {"", kHost, 1}), FailsWith(Code::kResourceExhausted, "TOO_MANY_ARENAS"));
  EXPECT_TRUE(broker().Allocate(Open(), {"", kHost, 1}).ok());
  GiveBack(session, first);
  EXPECT_TRUE(broker().Allocate(session, {"", kHost, 1}).ok());
  // A failed allocation does not count.
  world().allocate_fails = true;
  const auto third = Open();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(broker().Allocate(third, {"", kHost, 1}).status().reason(), "DEVICE_FULL");
}

TEST_F(AllocateTest, HasALimitOfNamespacesAndForgetsUnusedOnes) {
  config_.limits.namespaces = 2;
  const auto session = Open();
  const auto arena = Unsealed(session, 1, "a");
  Unsealed(session, 1, "b");
  EXPECT_THAT(broker().Allocate(session, {"c", kHost, 1}), FailsWith(Code::kResourceExhausted, "TOO_MANY_NAMESPACES"));
  EXPECT_TRUE(broker().Allocate(session, {"b", kHost, 1}).ok());
  GiveBack(session, arena);
  Sweep();
  EXPECT_TRUE(broker().Allocate(session, {"c", kHost, 1}).ok());
  // A namespace whose only allocation failed does not count either.
  broker().EndSession(session);
  Sweep();
  const auto next = Open();
  world().allocate_fails = true;
  for (const char* ns : {"d", "e", "f"}) {
    EXPECT_THAT(broker().Allocate(next, {ns, kHost, 1}), FailsWith(Code::kResourceExhausted, "DEVICE_FULL"));
  }
}

TEST_F(AllocateTest, HasALimitOfNamespacesPerUser) {
  const auto session = Open();
  const auto arena = Unsealed(session, 1, "a");
  for (int i = 1; i < 64; ++i) Unsealed(session, 1, std::to_string(i));
  const auto third = broker().Allocate(session, {"c", kHost, 1});
  EXPECT_THAT(third, FailsWith(Code::kResourceExhausted, "TOO_MANY_NAMESPACES"));
  EXPECT_NE(third.status().message().find("has 64 namespaces, its part of limits.namespaces (256)"), std::string::npos);
  Unsealed(Open(1001), 1, "c");  // another user's are not counted
  GiveBack(session, arena);
  Sweep();
  Unsealed(session, 1, "c");
}

TEST_F(AllocateTest, HasALimitOfArenasPerUserThatSurvivesItsSessions) {
  config_.limits.object_bytes_per_uid = 3 * object_bytes::kArena + 2 * object_bytes::kShare - 1;
  const auto session = Open();
  for (const char* ns : {"a", "b"}) {
    const auto arena = broker().Allocate(session, {ns, kHost, 1});
    ASSERT_TRUE(arena.ok());
    ASSERT_TRUE(broker().Mapped(session, ArenaId{arena->handle.arena}).ok());
    ASSERT_TRUE(broker().Publish(session, Call(arena->handle, "kept", 0, 256, ns)).ok());
  }
  broker().EndSession(session);
  Sweep();
  const auto next = Open();
  const auto third = broker().Allocate(next, {"a", kHost, 1});
  EXPECT_THAT(third, FailsWith(Code::kResourceExhausted, "TOO_MANY_ARENAS"));
  EXPECT_NE(third.status().message().find("object_bytes_per_uid"), std::string::npos);
  Unsealed(Open(1001));
  ASSERT_TRUE(Withdraw(next, {{.name = "kept"}}, "a").ok());
  Sweep();
  Unsealed(next, 1, "a");
}

TEST_F(AllocateTest, NamesOfNamespacesHaveALimit) {
  config_.limits.name_bytes_max = 3;
  const auto session = Open();
  EXPECT_THAT(broker().Allocate(session, {"abcd", kHost, 1}), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
}

TEST_F(AllocateTest, MappedIsTheMakersAloneAndMayBeRepeated) {
  const auto session = Open();
  const auto other = Open();
  const auto arena = Unsealed(session);
  const ArenaId id{arena.arena};
  const auto foreign = broker().Mapped(other, id);
  EXPECT_THAT(foreign, FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  EXPECT_THAT(broker().Mapped(session, ArenaId{id == ArenaId{77} ? 78u : 77u}),
              FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  EXPECT_TRUE(broker().Mapped(session, id).ok());
  EXPECT_TRUE(broker().Mapped(session, id).ok());
  // the second publish did not seal again
  EXPECT_EQ(Publish(session, arena, "a").immutability, Immutability::kByContract);
}

// A quota per namespace does not bound a user, who may make many namespaces.
TEST_F(AllocateTest, AUserHasALimitOverAllItsNamespaces) {
  config_.limits.bytes_per_uid = 3 * kPage;
  const auto session = Open();
  EXPECT_THAT(broker().Allocate(session, {"x", kHost, 4 * kPage}),
              FailsWith(Code::kResourceExhausted, "QUOTA_TOO_SMALL"));
  const auto x = Arena(session, 2 * kPage, "x");
  const auto refused = broker().Allocate(session, {"y", kHost, 2 * kPage});
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("bytes_per_uid (8192 of 12288 in use)"));
  EXPECT_TRUE(broker().Allocate(session, {"y", kHost, kPage}).ok());
  EXPECT_TRUE(broker().Allocate(Open(2000), {"y", kHost, 3 * kPage}).ok()) << "each user has the limit";
  GiveBack(session, x);
  Sweep();
  EXPECT_TRUE(broker().Allocate(session, {"y", kHost, 2 * kPage}).ok());
}

TEST_F(AllocateTest, MappedSaysWhenTheSealFails) {
  const auto session = Open();
  const auto arena = Unsealed(session);
  world().seal_fails = true;
  EXPECT_EQ(broker().Mapped(session, ArenaId{arena.arena}).code(), Code::kFailedPrecondition);
  const auto refused = broker().Publish(session, Call(arena, "a"));
  EXPECT_THAT(refused, FailsWith(Code::kFailedPrecondition, "ARENA_NOT_SEALED"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("is not sealed: cannot be sealed"));
}

TEST_F(AllocateTest, ExportIsForTheMakerAndForThoseWhoLease) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const ArenaId id{arena.arena};
  const auto own = broker().Export(maker, id, arena.generation);
  ASSERT_TRUE(own.ok());
  EXPECT_TRUE(own->descriptor.valid());
  EXPECT_EQ(own->arena_size, kPage);
  EXPECT_THAT(broker().Export(maker, id, arena.generation + 1), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  EXPECT_THAT(broker().Export(reader, id, arena.generation), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  Publish(maker, arena, "a");
  const auto lease = Lease(reader, "a");
  EXPECT_TRUE(broker().Export(reader, id, arena.generation).ok());
  Release(reader, lease);
  EXPECT_THAT(broker().Export(reader, id, arena.generation), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
}

}  // namespace
}  // namespace arraybridge::daemon
