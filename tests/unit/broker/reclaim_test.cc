// SPDX-License-Identifier: Apache-2.0
// Arenas, shares and sessions end, and their bytes return once.
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

class ReclaimTest : public BrokerTest {
 protected:
  void ExpectEmpty() {
    const Snapshot now = Now();
    EXPECT_EQ(now.shares, 0u);
    EXPECT_EQ(now.withdrawn_shares, 0u);
    EXPECT_EQ(now.leases, 0u);
    EXPECT_EQ(now.arenas, 0u);
    EXPECT_EQ(now.dying_arenas, 0u);
    EXPECT_EQ(now.charged_bytes, 0u);
    EXPECT_EQ(world().allocated, 0u);
  }
};

TEST_F(ReclaimTest, WhatWasNotPublishedDiesWithItsSession) {
  const auto session = Open();
  Arena(session, 3 * kPage);
  Unsealed(session);
  broker().EndSession(session);
  EXPECT_EQ(Now().dying_arenas, 2u);
  EXPECT_EQ(Now().charged_bytes, 4 * kPage);  // the bytes still exist
  EXPECT_EQ(Sweep().freed_bytes, 4 * kPage);
  ExpectEmpty();
}

TEST_F(ReclaimTest, AnArenaThatSomebodyMapsIsChargedUntilItIsNot) {
  const auto session = Open();
  Arena(session);
  broker().EndSession(session);
  world().held = true;
  const auto first = Sweep();
  EXPECT_EQ(first.freed_bytes, 0u);
  EXPECT_TRUE(first.more_later);
  EXPECT_EQ(Now().dying_arenas, 1u);
  EXPECT_EQ(Now().charged_bytes, kPage);
  world().held = false;
  const auto second = Sweep();
  EXPECT_EQ(second.freed_bytes, kPage);
  EXPECT_FALSE(second.more_later);
  ExpectEmpty();
}

TEST_F(ReclaimTest, ANamedShareOutlivesItsMakerAndBecomesEnforced) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker, 2 * kPage);
  Publish(maker, arena, "a");
  world().mapped_writable = true;
  broker().EndSession(maker);
  EXPECT_TRUE(Sweep().more_later);  // the process has not ended yet
  EXPECT_EQ(Acquire(reader, {{.name = "a"}})->shares.at(0).immutability, Immutability::kByContract);
  world().mapped_writable = false;
  EXPECT_FALSE(Sweep(Clock::now() + std::chrono::minutes(2)).more_later);
  const auto acquired = Acquire(reader, {{.name = "a"}});
  EXPECT_EQ(acquired->shares.at(0).immutability, Immutability::kEnforced);
  EXPECT_EQ(Now().charged_bytes, 2 * kPage);  // the whole arena
  ASSERT_TRUE(Withdraw(reader, {{.name = "a"}}).ok());
  EXPECT_EQ(Sweep().freed_bytes, 0u);  // it is leased
  broker().EndSession(reader);
  EXPECT_EQ(Sweep().freed_bytes, 2 * kPage);
  ExpectEmpty();
}

// A refused seal may sleep in the kernel: a sweep tries one of them, with growing pauses.
TEST_F(ReclaimTest, ASweepTriesOneSealThatIsRefused) {
  const auto maker = Open();
  for (int i = 0; i < 3; ++i) Publish(maker, Arena(maker), std::to_string(i));
  world().mapped_writable = true;
  broker().EndSession(maker);
  const auto begun = Clock::now();
  for (int sweep = 1; sweep <= 3; ++sweep) {
    EXPECT_TRUE(Sweep(begun).more_later);
    EXPECT_EQ(world().final_seals, static_cast<uint64_t>(sweep)) << "another arena each time";
  }
  Sweep(begun);
  EXPECT_EQ(world().final_seals, 3u) << "none is due yet";
  Sweep(begun + std::chrono::milliseconds(50));
  EXPECT_EQ(world().final_seals, 4u);
  world().mapped_writable = false;
  EXPECT_FALSE(Sweep(begun + std::chrono::minutes(2)).more_later);
}

TEST_F(ReclaimTest, ASealThatIsRefusedForGoodIsNotTriedAgain) {
  const auto maker = Open();
  Publish(maker, Arena(maker), "a");
  world().seal_fails = true;
  broker().EndSession(maker);
  EXPECT_FALSE(Sweep().more_later);
  EXPECT_EQ(Acquire(Open(), {{.name = "a"}})->shares.at(0).immutability, Immutability::kByContract);
}

TEST_F(ReclaimTest, AnUnnamedShareIsAnOrphanForItsGrace) {
  config_.orphan_grace = std::chrono::minutes(1);
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto share = Publish(maker, arena, "");
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().shares, 1u);  // its maker lives
  broker().EndSession(maker);
  EXPECT_TRUE(Sweep().more_later);
  EXPECT_EQ(Now().shares, 1u);
  const auto lease = Lease(reader, share.name);
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().shares, 1u);  // leased
  Release(reader, lease);
  Sweep(Clock::now() + std::chrono::hours(1));
  ExpectEmpty();
}

TEST_F(ReclaimTest, AnUnnamedShareInAnArenaGivenBackIsAnOrphanToo) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "");
  GiveBack(maker, arena);
  broker().EndSession(maker);
  Sweep(Clock::now() + std::chrono::hours(1));
  ExpectEmpty();
}

TEST_F(ReclaimTest, AnOrphanMayBeWithdrawnBeforeItsEnd) {
  const auto maker = Open();
  const auto share = Publish(maker, Arena(maker), "");
  broker().EndSession(maker);
  ASSERT_TRUE(Withdraw(Open(), {{.id = share.share}}).ok());
  EXPECT_FALSE(Sweep(Clock::now() + std::chrono::hours(1)).more_later);
  ExpectEmpty();
}

TEST_F(ReclaimTest, AnArenaGivenBackDiesOrStaysFrozen) {
  const auto session = Open();
  const auto empty = Arena(session);
  const auto full = Arena(session);
  Publish(session, full, "a");
  Publish(session, full, "b", 256);
  ASSERT_TRUE(Withdraw(session, {{.name = "b"}}).ok());
  GiveBack(session, empty);
  GiveBack(session, full);
  // the arena was given back, so its ranges are not carved again
  EXPECT_TRUE(broker().TakeReturned(session, 9).empty());
  EXPECT_EQ(Sweep().freed_bytes, kPage);
  EXPECT_THAT(broker().Publish(session, Call(full, "c", 512)), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  EXPECT_TRUE(Acquire(session, {{.name = "a"}}).ok());
  EXPECT_TRUE(broker().Export(session, ArenaId{full.arena}, full.generation).ok());  // the session made the arena
  broker().EndSession(session);
  ASSERT_TRUE(Withdraw(Open(), {{.name = "a"}}).ok());
  Sweep();
  ExpectEmpty();
}

TEST_F(ReclaimTest, NobodyGivesBackAnArenaOfOthers) {
  const auto session = Open();
  const auto arena = Arena(session);
  GiveBack(Open(), arena);
  EXPECT_EQ(Now().arenas, 1u);
  EXPECT_TRUE(broker().Publish(session, Call(arena, "a")).ok());
}

TEST_F(ReclaimTest, ReturnedRangesComeInPortionsAndMayBePublishedAgain) {
  const auto session = Open();
  const auto arena = Arena(session);
  for (uint64_t i = 0; i < 5; ++i) Publish(session, arena, Concat("s", i), i * 256);
  ASSERT_TRUE(Withdraw(session, {{.name = "s0"}, {.name = "s1"}, {.name = "s2"}, {.name = "s3"}, {.name = "s4"}}).ok());
  EXPECT_EQ(broker().TakeReturned(session, 2).size(), 2u);
  EXPECT_EQ(broker().TakeReturned(session, 9).size(), 3u);
  EXPECT_TRUE(broker().TakeReturned(session, 9).empty());
  Publish(session, arena, "again", 0, kPage);
}

TEST_F(ReclaimTest, RangesThatNobodyTakesAreBounded) {
  config_.limits.shares_per_namespace = 3;
  const auto session = Open();
  const auto arena = Arena(session);
  for (int i = 0; i < 10; ++i) {
    Publish(session, arena, "a");
    ASSERT_TRUE(Withdraw(session, {{.name = "a"}}).ok());
  }
  EXPECT_EQ(broker().TakeReturned(session, 99).size(), 3u);
}

// A client that gives back an arena before it has taken the returned ranges leaves them in the list.
TEST_F(ReclaimTest, RangesOfArenasThatWereGivenBackAreSkippedSomeAtATime) {
  const auto session = Open();
  const auto old = Arena(session);
  for (int i = 0; i < 5000; ++i) {
    Publish(session, old, "a");
    ASSERT_TRUE(Withdraw(session, {{.name = "a"}}).ok());
  }
  GiveBack(session, old);
  const auto arena = Arena(session);
  Publish(session, arena, "b");
  ASSERT_TRUE(Withdraw(session, {{.name = "b"}}).ok());
  EXPECT_TRUE(broker().TakeReturned(session, 9).empty()) << "one call looks at a bounded number";
  size_t taken = 0;
  for (int calls = 0; calls < 5 && taken == 0; ++calls) taken = broker().TakeReturned(session, 9).size();
  EXPECT_EQ(taken, 1u);
}

TEST_F(ReclaimTest, TheEndOfAReaderReturnsRangesToTheWriter) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  Lease(reader, "a");
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  broker().EndSession(reader);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
  EXPECT_EQ(Now().leases, 0u);
}

TEST_F(ReclaimTest, ASessionThatLeasesItsOwnWithdrawnShareEndsCleanly) {
  const auto session = Open();
  const auto arena = Arena(session);
  Publish(session, arena, "a");
  Lease(session, "a");
  ASSERT_TRUE(Withdraw(session, {{.name = "a"}}).ok());
  GiveBack(session, arena);
  EXPECT_EQ(Now().arenas, 1u);
  broker().EndSession(session);
  Sweep();
  ExpectEmpty();
}

TEST_F(ReclaimTest, AnUnusedNamespaceDoesNotStay) {
  const auto session = Open();
  const auto arena = Arena(session, kPage, "x");
  EXPECT_EQ(broker().ListNamespaces(session, {.page_size = 9})->rows.size(), 1u);
  GiveBack(session, arena);
  Sweep();
  EXPECT_TRUE(broker().ListNamespaces(session, {.page_size = 9})->rows.empty());
}

// Freed footprints by cause, in the order of FreeCause.
TEST_F(ReclaimTest, WhatLetAnArenaGoIsToldWithItsBytes) {
  const auto flow = [this] {
    const auto flows = Now().flows;
    EXPECT_EQ(flows.size(), 1u);
    EXPECT_EQ(flows.front().kind, HandleKind::kMemfd);
    return flows.front();
  };
  EXPECT_EQ(flow().allocations_total, 0u);  // every served device has a row from the start
  const auto session = Open();
  GiveBack(session, Arena(session, kPage));
  Sweep();
  EXPECT_THAT(flow().freed_bytes_total, testing::ElementsAre(kPage, 0, 0, 0));

  const auto withdrawn = Arena(session, 2 * kPage);
  Publish(session, withdrawn, "withdrawn");
  GiveBack(session, withdrawn);
  Sweep();
  EXPECT_EQ(flow().allocations, 1u);
  const ShareKey key{.name = "withdrawn"};
  ASSERT_TRUE(broker().Withdraw(session, "default", {&key, 1}).ok());
  Sweep();
  EXPECT_THAT(flow().freed_bytes_total, testing::ElementsAre(kPage, 0, 2 * kPage, 0));
  EXPECT_EQ(Now().withdrawals_total, 1u);

  const auto removed = Arena(session, 4 * kPage);
  Publish(session, removed, "removed");
  GiveBack(session, removed);
  const ShareKey other{.name = "removed"};
  ASSERT_TRUE(broker().Withdraw(NamespaceOf{"default", 1000}, {&other, 1}).ok());
  Sweep();
  EXPECT_THAT(flow().freed_bytes_total, testing::ElementsAre(kPage, 0, 2 * kPage, 4 * kPage));

  const auto leased = Arena(session, 8 * kPage);
  Publish(session, leased, "leased");
  GiveBack(session, leased);
  const auto lease = Lease(session, "leased");
  const ShareKey read{.name = "leased"};
  ASSERT_TRUE(broker().Withdraw(session, "default", {&read, 1}).ok());
  Release(session, lease);  // the last lease
  Sweep();
  EXPECT_THAT(flow().freed_bytes_total, testing::ElementsAre(9 * kPage, 0, 2 * kPage, 4 * kPage));

  Arena(session, 16 * kPage);
  broker().EndSession(session);
  EXPECT_EQ(flow().allocations, 1u);  // the bytes still exist
  Sweep();
  EXPECT_THAT(flow().freed_bytes_total, testing::ElementsAre(9 * kPage, 16 * kPage, 2 * kPage, 4 * kPage));
  EXPECT_EQ(flow().allocations, 0u);
  EXPECT_EQ(flow().allocations_total, 5u);
  EXPECT_EQ(flow().took.count, 5u);
  EXPECT_EQ(flow().took.within.back(), 5u);
  EXPECT_EQ(flow().allocated_bytes_total, 31 * kPage);
  ExpectEmpty();
}

}  // namespace
}  // namespace arraybridge::daemon
