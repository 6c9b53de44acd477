// SPDX-License-Identifier: Apache-2.0
// Leases and hazard slots keep the bytes of shares from reuse.
#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/hazard_reader.h"

namespace arraybridge::daemon {
namespace {

class HazardsTest : public BrokerTest {
 protected:
  void Replace(SessionId session, const Handle& arena, std::string_view name, uint64_t offset, uint64_t size = 256) {
    auto call = Call(arena, name, offset, size);
    call.replace = true;
    EXPECT_TRUE(broker().Publish(session, call).ok());
  }
  void WithdrawOne(std::string_view name) { ASSERT_TRUE(Withdraw(Open(), {{.name = name}}).ok()); }
};

TEST_F(HazardsTest, WithdrawnBytesWaitForTheHoldToEnd) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  Reader reader(broker(), Open());
  EXPECT_FALSE(reader.Find("a")) << "older than the catalogue";
  const auto lease = Lease(reader.session, "a");  // inserts the share
  ASSERT_TRUE(reader.Hold("a"));
  Release(reader.session, lease);
  EXPECT_EQ(Now().hazard_slots, 1u);
  WithdrawOne("a");
  EXPECT_FALSE(reader.Find("a"));
  EXPECT_EQ(Now().pinned_bytes, 256u);
  EXPECT_TRUE(broker().hazards_waiting());
  EXPECT_EQ(broker().PollHazards().freed, 0u);
  EXPECT_THAT(broker().Publish(maker, Call(arena, "b")), FailsWith(Code::kFailedPrecondition, "OVERLAP"));
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  reader.Clear();
  EXPECT_EQ(broker().PollHazards().freed, 1u);
  EXPECT_FALSE(broker().hazards_waiting());
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_TRUE(broker().Publish(maker, Call(arena, "b")).ok());
}

TEST_F(HazardsTest, WhatNobodyHoldsIsReusedAtOnce) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const Reader reader(broker(), maker);
  Reader other(broker(), Open());
  Publish(maker, arena, "a");
  ASSERT_TRUE(other.Hold("a"));
  other.Clear();
  WithdrawOne("a");
  EXPECT_FALSE(broker().hazards_waiting());
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(HazardsTest, ALeaseAndAHoldBothHaveToEnd) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  Reader reader(broker(), maker);
  const auto lease = Lease(maker, "a");
  ASSERT_TRUE(reader.Hold("a"));
  WithdrawOne("a");
  EXPECT_FALSE(broker().hazards_waiting()) << "it waits for the lease";
  Release(maker, lease);
  EXPECT_TRUE(broker().hazards_waiting());
  reader.Clear();
  EXPECT_EQ(broker().PollHazards().freed, 1u);
}

TEST_F(HazardsTest, TheEndOfASessionEndsItsHolds) {
  const auto maker = Open();
  Publish(maker, Arena(maker), "a");
  Reader reader(broker(), Open());
  Lease(maker, "a");
  ASSERT_TRUE(reader.Hold("a"));
  broker().EndSession(maker);
  WithdrawOne("a");
  EXPECT_EQ(Sweep().freed_bytes, 0u);
  EXPECT_EQ(Now().charged_bytes, kPage);
  broker().EndSession(reader.session);
  EXPECT_FALSE(broker().hazards_waiting());
  EXPECT_EQ(Sweep().freed_bytes, kPage);
  EXPECT_EQ(Now().charged_bytes, 0u);
}

TEST_F(HazardsTest, AReplacedNameFindsOneOrTheOtherAndNeverNone) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader reader(broker(), maker);
  Replace(maker, arena, "a", 0);
  Reader late(broker(), Open());
  for (uint64_t i = 1; i < 10; ++i) {
    ASSERT_TRUE(late.Hold("a"));
    const uint64_t offset = late.FactsOf("a").offset;
    Replace(maker, arena, "a", offset == 0 ? 256 : 0);
    EXPECT_TRUE(late.Find("a"));
    EXPECT_NE(late.FactsOf("a").offset, offset);
    late.Clear();
    EXPECT_EQ(broker().PollHazards().freed, 1u);
  }
}

TEST_F(HazardsTest, ARecordSaysWhatAnAnswerSays) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const Reader reader(broker(), maker);
  auto call = Call(arena, "a", 512, 300);
  call.description = "said by its maker";
  const auto share = broker().Publish(maker, call);
  const Reader late(broker(), Open());
  const auto facts = late.FactsOf("a");
  EXPECT_EQ(facts.arena, arena.arena);
  EXPECT_EQ(std::tie(facts.offset, facts.size), std::make_tuple(512u, 300u));
  EXPECT_EQ(facts.share, Number(share->share));
  EXPECT_EQ(facts.generation, share->generation);
  EXPECT_EQ(facts.text(), "said by its maker");
  EXPECT_FALSE(facts.enforced);
  GiveBack(maker, arena);
  Sweep();
  EXPECT_TRUE(late.FactsOf("a").enforced) << "its producer has ended";
}

TEST_F(HazardsTest, WhatLiesInASealedArenaSaysSoWhoeverSealedIt) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const Reader reader(broker(), maker);
  Publish(maker, arena, "a");
  EXPECT_FALSE(reader.FactsOf("a").enforced);
  auto call = Call(arena, "b", 512);
  call.sealed = true;
  ASSERT_TRUE(broker().Publish(maker, call).ok());
  EXPECT_TRUE(reader.FactsOf("b").enforced);
  EXPECT_TRUE(reader.FactsOf("a").enforced) << "the same arena, and the lease reports the same";
}

TEST_F(HazardsTest, AnotherUsersNamespaceIsNotThere) {
  const auto maker = Open(1000);
  const auto stranger = Open(1001);
  Arena(maker);
  EXPECT_THAT(broker().ExportCatalogue(stranger, "default"), FailsWith(Code::kNotFound, "NAMESPACE_NOT_FOUND"));
  EXPECT_TRUE(broker().ExportCatalogue(maker, "default").ok());
  EXPECT_THAT(broker().ExportHazardPage(stranger, "default"), FailsWith(Code::kNotFound, "NAMESPACE_NOT_FOUND"));
  EXPECT_THAT(broker().HazardPageMapped(maker, "default"), FailsWith(Code::kNotFound, "NAMESPACE_NOT_FOUND"));
  EXPECT_THAT(broker().ExportCatalogue(maker, "other"), FailsWith(Code::kNotFound, "NAMESPACE_NOT_FOUND"));
  EXPECT_THAT(broker().ExportCatalogue(SessionId{99}, "default"), FailsWith(Code::kNotFound, "SESSION_ENDED"));
}

TEST_F(HazardsTest, AnUnnamedShareThatIsHeldIsNoOrphan) {
  config_.orphan_grace = std::chrono::minutes(1);
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader there(broker(), Open());
  const auto share = Publish(maker, arena, "");
  ASSERT_TRUE(there.Hold(share.name));
  EXPECT_TRUE(there.FactsOf(share.name).unnamed);
  broker().EndSession(maker);
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().shares, 1u);
  there.Clear();
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().shares, 0u);
}

TEST_F(HazardsTest, ANamespaceThatGoesClosesItsCatalogue) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const Reader reader(broker(), maker);
  EXPECT_FALSE(reader.closed());
  GiveBack(maker, arena);
  Sweep();
  EXPECT_TRUE(reader.closed());
  Arena(maker);
  const Reader again(broker(), maker);
  EXPECT_FALSE(again.closed());
  broker().EndSession(maker);
}

TEST_F(HazardsTest, ACatalogueHoldsAsManyAsItMay) {
  config_.limits.shares_per_namespace = 2;
  const auto maker = Open();
  const auto arena = Arena(maker);
  const Reader none(broker(), maker);
  config_.limits.shares_per_namespace = 3;  // by a reload
  for (const uint64_t i : {0, 1, 2}) Publish(maker, arena, std::to_string(i), i * 256);
  const Reader reader(broker(), Open());
  EXPECT_TRUE(reader.Find("0") && reader.Find("1"));
  EXPECT_FALSE(reader.Find("2"));
  EXPECT_TRUE(Acquire(maker, {{.name = "2"}}).ok()) << "a call finds it";
  WithdrawOne("0");
  Lease(maker, "2");
  EXPECT_TRUE(reader.Find("2")) << "there is room now";
}

class PinnedTest : public HazardsTest {
 protected:
  PinnedTest() { config_.limits.pinned_bytes_per_session = 1000; }
};

TEST_F(PinnedTest, EachHolderIsChargedForWhatItPins) {
  const auto maker = Open();
  const auto arena = Arena(maker, 4 * kPage);
  Reader first(broker(), Open());
  Reader modest(broker(), Open());
  Reader greedy(broker(), Open());
  for (uint32_t i = 0; i < 5; ++i) Publish(maker, arena, std::to_string(i), i * 256);
  ASSERT_TRUE(modest.Hold("0"));
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(greedy.Hold(std::to_string(i), i));
  greedy.page().words[10] = greedy.page().words[0];  // one share counts once
  greedy.page().high = 0xFFFFFFFF;
  for (uint32_t i = 0; i < 3; ++i) WithdrawOne(std::to_string(i));
  EXPECT_EQ(Now().pinned_bytes, 768u);
  EXPECT_TRUE(broker().PollHazards().over_limit.empty());
  ASSERT_TRUE(greedy.Hold("3", 3));
  WithdrawOne("3");
  EXPECT_EQ(broker().PollHazards().over_limit, std::vector{greedy.session});
  broker().EndSession(greedy.session);
  EXPECT_EQ(Now().pinned_bytes, 256u) << "only the bytes that the modest reader holds";
  EXPECT_TRUE(broker().PollHazards().over_limit.empty());
}

TEST_F(PinnedTest, NonsenseInAPageHoldsNothing) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader first(broker(), maker);
  Reader hostile(broker(), Open());
  Publish(maker, arena, "a");
  hostile.page().high = 0xFFFFFFFF;
  for (uint32_t i = 0; i < hazard::kWords; ++i) hostile.page().words[i] = ~uint64_t{i};
  WithdrawOne("a");
  EXPECT_FALSE(broker().hazards_waiting());
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(PinnedTest, WhatAloneIsTooMuchToPinIsAcquiredByCalls) {
  const auto maker = Open();
  const auto arena = Arena(maker, 4 * kPage);
  const Reader reader(broker(), Open());
  auto call = Call(arena, "whole");
  call.size = 1000;
  ASSERT_TRUE(broker().Publish(maker, call).ok());
  call = Call(arena, "more", 1024);
  call.size = 1001;
  ASSERT_TRUE(broker().Publish(maker, call).ok());
  EXPECT_TRUE(reader.Find("whole"));
  EXPECT_FALSE(reader.Find("more"));
  Lease(reader.session, "more");
  EXPECT_FALSE(reader.Find("more")) << "a lease does not insert it either";
  WithdrawOne("more");
  EXPECT_TRUE(broker().PollHazards().over_limit.empty());
}

// Alice publishes in a namespace of sixteen frames, where others may only read. She replaces her arrays, so that those
// who keep them take her quota.
class OthersBytesTest : public HazardsTest {
 protected:
  static constexpr uint64_t kQuota = 4 * kPage;
  static constexpr uint64_t kFrame = 1024;

  OthersBytesTest() {
    using Who = AccessEntry::Who;
    config_.namespaces["team"] = {
        .quota_bytes = kQuota,
        .access = {{Who::kUser, kAlice, {}, Right::kWrite}, {Who::kAnyone, 0, {}, Right::kRead}}};
    maker_ = Open(kAlice);
    arena_ = Arena(maker_, kQuota, "team");
  }
  // The share lies at its number.
  void Put(uint64_t number, uint64_t size = kFrame) {
    ASSERT_TRUE(broker().Publish(maker_, Call(arena_, std::to_string(number), number * kFrame, size, "team")).ok());
  }
  Status Lease(SessionId session, uint64_t number, std::vector<LeaseId>* leases = nullptr) {
    const auto acquired = Acquire(session, {{.name = std::to_string(number)}}, "team");
    if (acquired.ok() && leases != nullptr) leases->push_back(acquired->shares.at(0).lease);
    return acquired.status();
  }
  void Withdraw(uint64_t number) {
    ASSERT_TRUE(BrokerTest::Withdraw(maker_, {{.name = std::to_string(number)}}, "team").ok());
  }
  // How many frames the session gets that are withdrawn afterwards, from this one on.
  uint64_t Pin(SessionId session, uint64_t first, std::vector<LeaseId>* leases = nullptr) {
    uint64_t number = first;
    for (; number < 16; ++number) {
      Put(number);
      const Status got = Lease(session, number, leases);
      Withdraw(number);
      if (got.ok()) continue;
      EXPECT_THAT(got, FailsWith(Code::kResourceExhausted, "PINNED_BYTES"));
      break;
    }
    return number - first;
  }

  SessionId maker_{};
  Handle arena_;
};

TEST_F(OthersBytesTest, AReaderThatKeepsWithdrawnSharesMayHoldHalfTheQuota) {
  const auto reader = Open(kBob);
  Put(15);
  EXPECT_EQ(Pin(reader, 0), 8u);
  EXPECT_THAT(Lease(reader, 15), FailsWith(Code::kResourceExhausted, "PINNED_BYTES")) << "it is still published";
  EXPECT_THAT(Lease(reader, 15).message(),
              testing::HasSubstr("user 1001 holds 8 arrays, 8192 bytes, in namespace 'team'; others have withdrawn or "
                                 "replaced 8 of them, and a user who may only read may hold 8192 bytes then"));
  EXPECT_TRUE(Lease(maker_, 15).ok());
}

TEST_F(OthersBytesTest, AReaderMayHoldAllThatIsPublished) {
  const auto reader = Open(kBob);
  for (uint64_t i = 0; i < 14; ++i) Put(i);
  for (uint64_t i = 0; i < 13; ++i) EXPECT_TRUE(Lease(reader, i).ok());
  Withdraw(0);
  EXPECT_THAT(Lease(reader, 13), FailsWith(Code::kResourceExhausted, "PINNED_BYTES"));
  EXPECT_TRUE(Lease(Open(kBob + 1), 13).ok()) << "other readers pay nothing";
}

TEST_F(OthersBytesTest, TheSharesOfOneRequestCountTogether) {
  const auto reader = Open(kBob);
  EXPECT_EQ(Pin(reader, 0), 8u);
  const auto other = Open(kBob + 1);
  for (uint64_t i = 9; i < 16; ++i) Put(i);
  ASSERT_TRUE(Lease(other, 9).ok());
  Withdraw(9);
  EXPECT_TRUE(
      Acquire(other, {{.name = "10"}, {.name = "11"}, {.name = "12"}, {.name = "13"}, {.name = "14"}}, "team").ok());
  EXPECT_THAT(Acquire(other, {{.name = "13"}, {.name = "14"}, {.name = "15"}, {.name = "15"}}, "team"),
              FailsWith(Code::kResourceExhausted, "PINNED_BYTES"));
}

TEST_F(OthersBytesTest, TheSessionsOfAUserCountTogether) {
  const auto one = Open(kBob);
  const auto two = Open(kBob);
  for (uint64_t i = 0; i < 3; ++i) Put(i);
  for (const auto session : {one, two}) {
    for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(Lease(session, i).ok());
  }
  for (uint64_t i = 0; i < 3; ++i) Withdraw(i);
  EXPECT_EQ(Pin(two, 3), 5u) << "three arrays count once, whichever sessions have them";
  EXPECT_EQ(Pin(one, 9), 0u);
  broker().EndSession(one);
  EXPECT_EQ(Pin(two, 10), 0u) << "it has all of them, too";
}

TEST_F(OthersBytesTest, WhatWasGivenBackCountsNoLonger) {
  const auto reader = Open(kBob);
  std::vector<LeaseId> leases;
  EXPECT_EQ(Pin(reader, 0, &leases), 8u);
  for (const LeaseId lease : leases) Release(reader, lease);
  EXPECT_EQ(Pin(reader, 0), 8u);
  broker().EndSession(reader);
  EXPECT_EQ(Pin(Open(kBob), 0), 8u);
}

TEST_F(OthersBytesTest, OneShareOfAnySizeMayBeKept) {
  const auto reader = Open(kBob);
  Put(0, kQuota - 2 * kFrame);
  EXPECT_TRUE(Lease(reader, 0).ok());
  Withdraw(0);
  EXPECT_EQ(Pin(reader, 14), 1u) << "its successor, and nothing after that";
}

TEST_F(OthersBytesTest, OnesOwnLeasesAreNotCounted) { EXPECT_EQ(Pin(maker_, 0), 16u); }

TEST_F(OthersBytesTest, WhoMayWriteMayFillTheNamespaceAnyway) {
  config_.namespaces["team"].access[1].right = Right::kWrite;
  broker().AdoptNamespaces();
  EXPECT_EQ(Pin(Open(kBob), 0), 16u);
}

TEST_F(OthersBytesTest, AChosenLimitHoldsInstead) {
  config_.limits.pinned_bytes_per_uid = 5 * kFrame;
  EXPECT_EQ(Pin(Open(kBob), 0), 5u);
}

TEST_F(OthersBytesTest, NoMoreThanHalfOfTheMakersOwnLimit) {
  config_.limits.bytes_per_uid = kQuota / 2;  // she has more already
  EXPECT_EQ(Pin(Open(kBob), 0), 4u);
}

TEST_F(OthersBytesTest, WhoMayOnlyReadReadsByCalls) {
  EXPECT_TRUE(broker().ExportCatalogue(maker_, "team").ok());
  const auto reader = Open(kBob);
  EXPECT_THAT(broker().ExportCatalogue(reader, "team"), FailsWith(Code::kPermissionDenied, "NAMESPACE_READ_ONLY"));
  EXPECT_THAT(broker().ExportHazardPage(reader, "team"), FailsWith(Code::kPermissionDenied, "NAMESPACE_READ_ONLY"));
}

TEST_F(HazardsTest, ASessionHasOnePageHoweverOftenItAsks) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader once(broker(), maker);
  Reader again(broker(), maker);
  Publish(maker, arena, "a");
  ASSERT_TRUE(once.Hold("a"));
  EXPECT_EQ(again.page().words[0], once.page().words[0]) << "the same page";
  ASSERT_TRUE(broker().HazardPageMapped(maker, "default").ok());
  EXPECT_THAT(broker().ExportHazardPage(maker, "default"), FailsWith(Code::kFailedPrecondition, "HAZARD_PAGE_MAPPED"));
  WithdrawOne("a");
  EXPECT_TRUE(broker().hazards_waiting()) << "the session still holds it";
  again.Clear();
}

}  // namespace
}  // namespace arraybridge::daemon
