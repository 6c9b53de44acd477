// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using PublishTest = BrokerTest;

TEST_F(PublishTest, TakesWhatItIsTold) {
  const auto session = Open();
  const auto arena = Arena(session);
  auto call = Call(arena, "a", 256, 300);
  call.description = "what clients read";
  const auto share = broker().Publish(session, call);
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_EQ(share->immutability, Immutability::kByContract);
  const auto acquired = Acquire(Open(), {{.name = "a"}});
  ASSERT_TRUE(acquired.ok());
  const LeasedShare& leased = acquired->shares.at(0);
  EXPECT_EQ(leased.facts->id, share->share);
  EXPECT_EQ(leased.facts->name, "a");
  EXPECT_EQ(leased.facts->ns, "default");
  EXPECT_EQ(leased.facts->generation, share->generation);
  EXPECT_EQ(leased.facts->description, "what clients read");
  EXPECT_FALSE(leased.facts->unnamed);
  EXPECT_EQ(leased.handle.offset, 256u);
  EXPECT_EQ(leased.handle.size, 300u);
  EXPECT_EQ(leased.handle.arena, arena.arena);
  EXPECT_EQ(leased.handle.generation, arena.generation);
}

TEST_F(PublishTest, InventsANameForTheUnnamed) {
  const auto session = Open();
  const auto arena = Arena(session);
  const auto first = Publish(session, arena, "");
  const auto second = Publish(session, arena, "", 256);
  EXPECT_THAT(first.name, testing::MatchesRegex("unnamed-[0-9a-f]{16}"));
  EXPECT_NE(first.name, second.name);
  EXPECT_GT(second.generation, first.generation);
  EXPECT_TRUE(Acquire(Open(), {{.name = first.name}})->shares.at(0).facts->unnamed);
}

TEST_F(PublishTest, RefusesWhatIsNotTheCallers) {
  const auto session = Open();
  const auto arena = Arena(session);
  const auto foreign = broker().Publish(Open(), Call(arena, "a"));
  EXPECT_THAT(foreign, FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  auto stale = Call(arena, "a");
  stale.arena_generation ^= 1;
  EXPECT_EQ(broker().Publish(session, stale).status().message(), foreign.status().message());
  EXPECT_THAT(broker().Publish(session, Call(arena, "a", 0, 256, "elsewhere")),
              FailsWith(Code::kFailedPrecondition, "OTHER_NAMESPACE"));
}

TEST_F(PublishTest, RefusesBadRangesAndNames) {
  config_.limits.name_bytes_max = 8;
  const auto session = Open();
  const auto arena = Arena(session);
  EXPECT_THAT(broker().Publish(session, Call(arena, "abcdefghi")), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
  EXPECT_THAT(broker().Publish(session, Call(arena, "a\n")), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
  EXPECT_THAT(broker().Publish(session, Call(arena, "a", 0, kPage + 1)),
              FailsWith(Code::kInvalidArgument, "OUT_OF_BOUNDS"));
  EXPECT_THAT(broker().Publish(session, Call(arena, "a", 8, 8)), FailsWith(Code::kInvalidArgument, "UNALIGNED"));
  Publish(session, arena, "a");
  EXPECT_THAT(broker().Publish(session, Call(arena, "b")), FailsWith(Code::kFailedPrecondition, "OVERLAP"));
  EXPECT_EQ(Now().shares, 1u);
}

TEST_F(PublishTest, NeedsASealedArena) {
  const auto session = Open();
  const auto arena = Unsealed(session);
  EXPECT_THAT(broker().Publish(session, Call(arena, "a")), FailsWith(Code::kFailedPrecondition, "ARENA_NOT_SEALED"));
  ASSERT_TRUE(broker().Mapped(session, ArenaId{arena.arena}).ok());
  EXPECT_TRUE(broker().Publish(session, Call(arena, "a")).ok());
}

TEST_F(PublishTest, SealedMeansForEverybody) {
  const auto session = Open();
  const auto arena = Unsealed(session);
  auto call = Call(arena, "a");
  call.sealed = true;
  world().mapped_writable = true;
  const auto refused = broker().Publish(session, call);
  EXPECT_THAT(refused, FailsWith(Code::kFailedPrecondition, "ARENA_STILL_WRITABLE"));
  EXPECT_NE(refused.status().message().find("forked child"), std::string::npos);
  EXPECT_EQ(Now().shares, 0u);
  world().mapped_writable = false;
  const auto share = broker().Publish(session, call);
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_EQ(share->immutability, Immutability::kEnforced);
  EXPECT_EQ(Publish(session, arena, "b", 256).immutability, Immutability::kEnforced);
}

TEST_F(PublishTest, ChecksEverythingBeforeItSealsForEver) {
  const auto session = Open();
  const auto arena = Arena(session);
  Publish(session, arena, "a");
  auto call = Call(arena, "a", 256);
  call.sealed = true;
  EXPECT_THAT(broker().Publish(session, call), FailsWith(Code::kAlreadyExists, "NAME_TAKEN"));
  EXPECT_EQ(Publish(session, arena, "b", 256).immutability, Immutability::kByContract);
}

TEST_F(PublishTest, ATakenNameIsRefusedOrReplaced) {
  const auto session = Open();
  const auto arena = Arena(session);
  const auto first = Publish(session, arena, "a");
  auto call = Call(arena, "a", 256);
  const auto refused = broker().Publish(session, call);
  EXPECT_THAT(refused, FailsWith(Code::kAlreadyExists, "NAME_TAKEN"));
  EXPECT_EQ(refused.status().message(), "namespace 'default' has a share 'a' already");
  const auto reader = Open();
  const auto old = Lease(reader, "a");
  call.replace = true;
  const auto second = broker().Publish(session, call);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(second->generation, first.generation);
  EXPECT_EQ(Acquire(reader, {{.name = "a"}})->shares.at(0).handle.offset, 256u);
  EXPECT_EQ(Now().shares, 1u);
  EXPECT_EQ(Now().withdrawn_shares, 1u);
  EXPECT_TRUE(broker().TakeReturned(session, 9).empty());  // still leased
  EXPECT_EQ(Release(reader, old), 1u);
  const auto returned = broker().TakeReturned(session, 9);
  ASSERT_EQ(returned.size(), 1u);
  EXPECT_EQ(returned[0].arena, ArenaId{arena.arena});
  EXPECT_EQ(returned[0].offset, 0u);
  EXPECT_EQ(returned[0].size, 256u);
  EXPECT_TRUE(broker().TakeReturned(session, 9).empty());  // each range once
  EXPECT_EQ(Now().withdrawn_shares, 0u);
}

TEST_F(PublishTest, HasALimitPerNamespaceThatLeasedLeftoversFill) {
  config_.limits.shares_per_namespace = 2;
  const auto session = Open();
  const auto arena = Arena(session);
  Publish(session, arena, "a");
  Publish(session, arena, "b", 256);
  EXPECT_THAT(broker().Publish(session, Call(arena, "c", 512)), FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  auto replacing = Call(arena, "a", 512);
  replacing.replace = true;
  EXPECT_TRUE(broker().Publish(session, replacing).ok());  // the replaced share makes room
  const auto lease = Lease(session, "a");
  replacing.offset = 768;
  EXPECT_THAT(broker().Publish(session, replacing), FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  ASSERT_TRUE(Withdraw(session, {{.name = "a"}}).ok());
  EXPECT_THAT(broker().Publish(session, Call(arena, "c", 1024)),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  Release(session, lease);
  EXPECT_TRUE(broker().Publish(session, Call(arena, "c", 1024)).ok());
}

// Descriptions and notes use the daemon's own memory, which no quota of bytes covers.
TEST_F(PublishTest, HasALimitOfWhatIsSaidOfShares) {
  using object_bytes::kLease;
  using object_bytes::kShare;
  config_.limits.object_bytes_per_uid = 2 * object_bytes::kArena + 2 * kShare + 100;
  const auto session = Open();
  const auto arena = Arena(session, 2 * kPage);
  const auto other = Arena(session, kPage, "other");
  const auto publish = [&](std::string_view name, uint64_t offset, size_t bytes) {
    auto call = Call(arena, name, offset);
    call.description = std::string(bytes, 'd');
    call.replace = true;
    return broker().Publish(session, call);
  };
  const auto refused = FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES");
  ASSERT_TRUE(publish("a", 0, 60).ok());
  EXPECT_THAT(publish("b", 256, 41), refused);
  auto elsewhere = Call(other, "b", 0, 256, "other");
  elsewhere.description = std::string(41, 'd');
  EXPECT_THAT(broker().Publish(session, elsewhere), refused) << "it is a limit of the user, not of a namespace";
  EXPECT_TRUE(publish("a", 256, kShare + 100 - kLease).ok()) << "the replaced share makes room";
  const auto lease = Lease(session, "a");
  ASSERT_TRUE(Withdraw(session, {{.name = "a"}}).ok());
  EXPECT_THAT(publish("b", 512, 1), refused) << "the replaced share is still leased";
  Release(session, lease);
  EXPECT_TRUE(publish("b", 512, kShare + 100).ok());
  const auto stranger = Open(2000);
  EXPECT_TRUE(broker().Publish(stranger, Call(Arena(stranger), "a")).ok());
}

TEST_F(PublishTest, TwoUidsDoNotMeet) {
  const auto one = Open(1);
  const auto two = Open(2);
  const auto arena = Arena(one);
  Publish(one, arena, "a");
  const auto missing = Acquire(two, {{.name = "a"}});
  EXPECT_THAT(missing, FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_EQ(missing.status().message(), "namespace 'default' has no share named 'a'");
  EXPECT_THAT(Withdraw(two, {{.name = "a"}}), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_TRUE(broker().Publish(two, Call(Arena(two), "a")).ok());
}

}  // namespace
}  // namespace arraybridge::daemon
