// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using AcquireTest = BrokerTest;

TEST_F(AcquireTest, BringsTheDescriptorOfTheFirstArenaThatTheSessionLacks) {
  const auto maker = Open();
  const auto one = Arena(maker);
  const auto two = Arena(maker);
  Publish(maker, one, "a");
  Publish(maker, two, "b");
  const auto reader = Open();
  const auto first = Acquire(reader, {{.name = "a"}, {.name = "b"}});
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(first->descriptor.has_value());
  EXPECT_EQ(first->descriptor->arena, one.arena);
  EXPECT_EQ(first->descriptor->generation, one.generation);
  EXPECT_EQ(first->descriptor->size, kPage);
  EXPECT_TRUE(first->descriptor->descriptor.valid());
  EXPECT_FALSE(first->shares[0].handle.descriptor.valid());
  const auto second = Acquire(reader, {{.name = "a"}, {.name = "b"}});
  ASSERT_TRUE(second->descriptor.has_value());
  EXPECT_EQ(second->descriptor->arena, two.arena);
  EXPECT_FALSE(Acquire(reader, {{.name = "a"}, {.name = "b"}})->descriptor.has_value());
  // The broker exports an arena again after the session has unmapped it.
  ASSERT_TRUE(broker().Release(reader, {}, {}, {&one.arena, 1}).ok());
  EXPECT_EQ(Acquire(reader, {{.name = "a"}})->descriptor->arena, one.arena);
}

TEST_F(AcquireTest, BringsNoDescriptorIfNoneIsWanted) {
  const auto maker = Open();
  Publish(maker, Arena(maker), "a");
  const auto reader = Open();
  const ShareKey key{.name = "a"};
  EXPECT_FALSE(broker().Acquire(reader, "", {&key, 1}, false)->descriptor.has_value());
  EXPECT_TRUE(broker().Acquire(reader, "", {&key, 1}, true)->descriptor.has_value());
}

TEST_F(AcquireTest, FindsByIdAndByGeneration) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto share = Publish(maker, arena, "a");
  EXPECT_TRUE(Acquire(maker, {{.id = share.share}}).ok());
  EXPECT_TRUE(Acquire(maker, {{.name = "a", .generation = share.generation}}).ok());
  EXPECT_TRUE(Acquire(maker, {{.id = share.share, .generation = share.generation}}).ok());
  const auto stale = Acquire(maker, {{.name = "a", .generation = share.generation + 1}});
  EXPECT_THAT(stale, FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_EQ(stale.status().message(),
            Concat("namespace 'default' has no share named 'a' of generation ", share.generation + 1));
  ASSERT_TRUE(Withdraw(maker, {{.id = share.share}}).ok());
  EXPECT_THAT(Acquire(maker, {{.id = share.share}}), FailsWith(Code::kNotFound, "SHARE_GONE"));
}

TEST_F(AcquireTest, SpeaksOfTheIdThatNeverComesBeforeTheNameThatMay) {
  const auto maker = Open();
  EXPECT_THAT(Acquire(maker, {{.name = "a"}, {.id = ShareId{99}}}), FailsWith(Code::kNotFound, "SHARE_GONE"));
}

TEST_F(AcquireTest, IsAllOrNone) {
  const auto maker = Open();
  Publish(maker, Arena(maker), "a");
  const auto missing = Acquire(maker, {{.name = "a"}, {.name = "nowhere"}, {.name = "a"}});
  EXPECT_THAT(missing, FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_NE(missing.status().message().find("nowhere"), std::string::npos);
  EXPECT_EQ(Now().leases, 0u);
  EXPECT_TRUE(Acquire(maker, {{.name = "a"}})->descriptor.has_value());  // the failed call exported none
}

// A session that waits for one of many names retries often; a retry must not lease the shares that exist.
TEST_F(AcquireTest, LeasesNothingBeforeAllIsThere) {
  const auto session = Open();
  Publish(session, Arena(session), "a");
  const auto before = Lease(session, "a");
  EXPECT_THAT(Acquire(session, {{.name = "a"}, {.name = "missing"}}), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_EQ(Number(Lease(session, "a")), Number(before) + 1);
}

TEST_F(AcquireTest, DoesNotEchoWhatIsNoName) {
  const auto session = Open();
  EXPECT_THAT(Acquire(session, {{.name = "a\nb"}}), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
  EXPECT_THAT(Acquire(session, {{.name = "a"}}, "\x01"), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
}

TEST_F(AcquireTest, HasALimitOfLeases) {
  config_.limits.leases_per_session = 2;
  const auto maker = Open();
  Publish(maker, Arena(maker), "a");
  const auto lease = Lease(maker, "a");
  EXPECT_THAT(Acquire(maker, {{.name = "a"}, {.name = "a"}}), FailsWith(Code::kResourceExhausted, "TOO_MANY_LEASES"));
  Lease(maker, "a");
  EXPECT_THAT(Acquire(maker, {{.name = "a"}}), FailsWith(Code::kResourceExhausted, "TOO_MANY_LEASES"));
  Release(maker, lease);
  EXPECT_TRUE(Acquire(maker, {{.name = "a"}}).ok());
}

TEST_F(AcquireTest, UndoesTheLeasesWhenTheDescriptorFails) {
  const auto maker = Open();
  const auto reader = Open();
  Publish(maker, Arena(maker), "a");
  world().export_fails = true;
  EXPECT_THAT(Acquire(reader, {{.name = "a"}}), FailsWith(Code::kResourceExhausted, "DESCRIPTORS"));
  EXPECT_EQ(Now().leases, 0u);
  world().export_fails = false;
  EXPECT_TRUE(Acquire(reader, {{.name = "a"}})->descriptor.has_value());
}

TEST_F(AcquireTest, ReleaseCountsOnlyTheCallersOwn) {
  const auto maker = Open();
  const auto other = Open();
  Publish(maker, Arena(maker), "a");
  const auto lease = Lease(maker, "a");
  EXPECT_EQ(Release(other, lease), 0u);
  EXPECT_EQ(Now().leases, 1u);
  EXPECT_EQ(Release(maker, lease), 1u);
  EXPECT_EQ(Release(maker, lease), 0u);
  EXPECT_EQ(Release(maker, LeaseId{999}), 0u);
  EXPECT_EQ(Now().leases, 0u);
}

TEST_F(AcquireTest, WithdrawTakesWhatIsThereAndNamesTheFirstThatIsNot) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  Publish(maker, arena, "b", 256);
  const auto missing = Withdraw(maker, {{.name = "a"}, {.name = "x"}, {.name = "y"}, {.name = "b"}});
  EXPECT_THAT(missing, FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_EQ(missing.status().message(), "namespace 'default' has no share named 'x'");
  EXPECT_EQ(Now().shares, 0u);
  Publish(maker, arena, "a");
  EXPECT_EQ(*Withdraw(maker, {{.name = "a"}}), 1u);
  EXPECT_FALSE(Withdraw(maker, {{.name = "a"}}).ok());
}

}  // namespace
}  // namespace arraybridge::daemon
