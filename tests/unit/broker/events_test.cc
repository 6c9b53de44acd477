// SPDX-License-Identifier: Apache-2.0
// Events of watchers: recipients, order, number; and the recorded readers of a share.
#include <thread>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kPlenty = 1 << 20;

class EventsTest : public BrokerTest {
 protected:
  WatcherId Watch(SessionId session, EventFilter filter = {}) {
    const auto opened = broker().OpenWatch(session, std::move(filter));
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened.ok() ? *opened : WatcherId{};
  }
  Events::Taken Take(SessionId session, WatcherId watcher) {
    auto taken = broker().events().Take(session, watcher, kPlenty);
    EXPECT_TRUE(taken.ok()) << taken.status().ToString();
    return taken.ok() ? *std::move(taken) : Events::Taken{};
  }
  static std::vector<EventKind> KindsOf(const Events::Taken& taken) {
    std::vector<EventKind> kinds;
    for (const auto& event : taken) kinds.push_back(event->kind);
    return kinds;
  }
};

TEST_F(EventsTest, TheLifeOfAShareIsToldInOrder) {
  const SessionId watcher = Open();
  const WatcherId watch = Watch(watcher);
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  PublishCall call = Call(arena, "frame");
  call.note = "numpy place";
  ASSERT_TRUE(broker().Publish(maker, call).ok());
  const ShareKey key{.name = "frame"};
  const auto leased = broker().Acquire(maker, "default", {&key, 1}, true, false, "torch hand_over");
  Release(maker, leased->shares[0].lease);
  EXPECT_TRUE(Withdraw(maker, {{.name = "frame"}}).ok());
  broker().EndSession(maker);

  const auto told = Take(watcher, watch);
  using enum EventKind;
  EXPECT_THAT(KindsOf(told),
              testing::ElementsAre(kSessionBegin, kAllocate, kPublish, kAcquire, kRelease, kWithdraw, kSessionEnd));
  const Event& published = *told[2];
  EXPECT_EQ(published.name, "frame");
  EXPECT_EQ(published.ns, "default");
  EXPECT_EQ(published.bytes, 256u);
  EXPECT_EQ(published.session, maker);
  EXPECT_EQ(published.uid, 1000u);
  EXPECT_EQ(published.note, "numpy place");
  EXPECT_EQ(published.device, kHost);
  EXPECT_GT(published.share, ShareId{});
  EXPECT_GT(published.generation, 0u);
  EXPECT_GE(told[3]->time_ns, published.time_ns);
  EXPECT_EQ(told[3]->note, "torch hand_over");
  EXPECT_EQ(told[1]->bytes, kPage);
  EXPECT_EQ(told[5]->reason, "withdrawn");
  EXPECT_EQ(told[6]->note, "test");
}

TEST_F(EventsTest, WhyAShareLostItsNameIsTold) {
  config_.orphan_grace = std::chrono::milliseconds(0);
  const SessionId watcher = Open();
  const WatcherId watch = Watch(watcher, {.kinds = 1u << static_cast<unsigned>(EventKind::kWithdraw)});
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  Publish(maker, arena, "frame");
  PublishCall again = Call(arena, "frame", 256);
  again.replace = true;
  ASSERT_TRUE(broker().Publish(maker, again).ok());
  ASSERT_TRUE(broker().Publish(maker, Call(arena, "", 512)).ok());
  broker().EndSession(maker);
  Sweep(Clock::now() + std::chrono::seconds(1));
  const auto told = Take(watcher, watch);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0]->reason, "replaced");
  EXPECT_EQ(told[0]->session, maker);
  EXPECT_EQ(told[1]->reason, "orphaned");
  EXPECT_EQ(told[1]->session, SessionId{});
}

TEST_F(EventsTest, NobodyIsToldOfAnotherUsersDoings) {
  const SessionId watcher = Open(1000);
  const WatcherId watch = Watch(watcher);
  const SessionId other = Open(1001);
  const Handle arena = Arena(other);
  Publish(other, arena, "secret");
  broker().EmitRefusal(other, "Acquire", NotFound("no"));
  broker().EndSession(other);
  EXPECT_TRUE(Take(watcher, watch).empty());
}

TEST_F(EventsTest, OnlyWhatWasAskedForIsTold) {
  const SessionId session = Open();
  const WatcherId of_kind = Watch(session, {.kinds = 1u << static_cast<unsigned>(EventKind::kAcquire)});
  const WatcherId of_name = Watch(session, {.kinds = 0, .ns = {}, .name_prefix = "a/"});
  const WatcherId elsewhere = Watch(session, {.kinds = 0, .ns = "other"});
  const Handle arena = Arena(session);
  Publish(session, arena, "a/1");
  Publish(session, arena, "b/1", 256);
  Lease(session, "b/1");
  EXPECT_THAT(KindsOf(Take(session, of_kind)), testing::ElementsAre(EventKind::kAcquire));
  EXPECT_THAT(KindsOf(Take(session, of_name)), testing::ElementsAre(EventKind::kPublish));
  EXPECT_TRUE(Take(session, elsewhere).empty());
}

TEST_F(EventsTest, ARefusalSaysWhatAndWhyAndALimitIsAKindOfItsOwn) {
  const SessionId session = Open();
  const WatcherId watch = Watch(session);
  broker().EmitRefusal(session, "Acquire", NotFound("share 'x' is not there").Because("SHARE_NOT_FOUND"));
  broker().EmitRefusal(session, "Allocate", ResourceExhausted(std::string(300, 'x')).Because("QUOTA_EXCEEDED"));
  const auto told = Take(session, watch);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0]->kind, EventKind::kRefusal);
  EXPECT_EQ(told[0]->verb, "Acquire");
  EXPECT_EQ(told[0]->code, Code::kNotFound);
  EXPECT_EQ(told[0]->reason, "SHARE_NOT_FOUND");
  EXPECT_EQ(told[0]->note, "share 'x' is not there");
  EXPECT_EQ(told[1]->kind, EventKind::kQuota);
  EXPECT_EQ(told[1]->note.size(), 256u);
}

TEST_F(EventsTest, WhoReadsTooSlowlyIsCutAndToldHowManyItLost) {
  config_.limits.events_per_watcher = 3;
  const SessionId session = Open();
  const WatcherId slow = Watch(session);
  const WatcherId quick = Watch(session);
  const Handle arena = Arena(session);
  for (uint64_t i = 0; i < 4; ++i) {
    Publish(session, arena, Concat("share", i), 256 * i);
    EXPECT_EQ(Take(session, quick).size(), i == 0 ? 2u : 1u);
  }
  EXPECT_EQ(Take(session, slow).size(), 3u);  // the events that it did not lose
  const auto cut = broker().events().Take(session, slow, kPlenty);
  EXPECT_THAT(cut, FailsWith(Code::kResourceExhausted, "WATCH_CUT"));
  EXPECT_THAT(cut.status().message(), testing::HasSubstr("lost 2 events"));
  EXPECT_EQ(Now().events_dropped_total, 2u);
  EXPECT_THAT(broker().events().Take(session, slow, kPlenty), FailsWith(Code::kNotFound, "WATCH_NOT_OPEN"));
  EXPECT_EQ(Now().watchers, 1u);
}

TEST_F(EventsTest, WatchersAreLimitedInAllAndOfOneUser) {
  config_.limits.watchers = 64;
  const SessionId session = Open(1000);
  const SessionId other = Open(1001);
  const WatcherId first = Watch(session);
  for (int i = 1; i < 16; ++i) Watch(session);
  const auto third = broker().OpenWatch(session, {});
  EXPECT_THAT(third, FailsWith(Code::kResourceExhausted, "TOO_MANY_WATCHERS"));
  EXPECT_THAT(third.status().message(), testing::HasSubstr("has 16 open watches, its part of limits.watchers (64)"));
  Watch(other);
  config_.limits.watchers = 17;
  EXPECT_THAT(broker().OpenWatch(other, {}).status().message(), testing::HasSubstr("limit watchers (17)"));
  config_.limits.watchers = 64;
  EXPECT_TRUE(broker().events().Close(session, first));
  EXPECT_FALSE(broker().events().Close(session, first));
  Watch(session);
}

TEST_F(EventsTest, AWatchIsItsSessionsAndEndsWithIt) {
  const SessionId session = Open();
  const SessionId other = Open();
  const WatcherId watch = Watch(session);
  EXPECT_THAT(broker().events().Take(other, watch, kPlenty), FailsWith(Code::kNotFound, "WATCH_NOT_OPEN"));
  EXPECT_FALSE(broker().events().Close(other, watch));
  broker().EndSession(session);
  EXPECT_EQ(Now().watchers, 0u);
  EXPECT_THAT(broker().OpenWatch(session, {}), FailsWith(Code::kNotFound, "SESSION_ENDED"));
}

TEST_F(EventsTest, AnAnswerHasAsManyAsFitAndAtLeastOne) {
  const SessionId session = Open();
  const WatcherId watch = Watch(session);
  for (int i = 0; i < 10; ++i) broker().EmitRefusal(session, "List", NotFound(std::string(100, 'x')));
  EXPECT_EQ(broker().events().Take(session, watch, 1)->size(), 1u);
  const auto some = broker().events().Take(session, watch, 1000);
  EXPECT_GT(some->size(), 1u);
  EXPECT_LT(some->size(), 9u);
}

TEST_F(EventsTest, WhoFoundNothingIsNewsOnceSomethingCame) {
  const SessionId session = Open();
  const WatcherId busy = Watch(session);
  const WatcherId waiting = Watch(session);
  EXPECT_TRUE(Take(session, waiting).empty());
  std::vector<WatcherId> news;
  std::thread waits([&] { news = broker().events().WaitForNews(); });
  Arena(session);
  waits.join();
  EXPECT_THAT(news, testing::ElementsAre(waiting));  // the other watcher has not asked
  EXPECT_EQ(Take(session, busy).size(), 1u);
  std::thread stopped([&] { news = broker().events().WaitForNews(); });
  broker().events().Stop();
  stopped.join();
  EXPECT_TRUE(news.empty());
}

class HistoryTest : public BrokerTest {
 protected:
  Result<AcquiredShares> Read(SessionId session, std::string_view name, std::string_view note) {
    const ShareKey key{.name = name};
    return broker().Acquire(session, "default", {&key, 1}, true, false, note);
  }
  Inspected Inspect(SessionId session, std::string_view name) {
    auto inspected = broker().Inspect(session, "default", {.name = name});
    EXPECT_TRUE(inspected.ok()) << inspected.status().ToString();
    return *std::move(inspected);
  }
};

TEST_F(HistoryTest, AShareKnowsWhoMadeItAndWhoReadItAlsoOnceTheyHaveGone) {
  const SessionId maker = Open();
  const SessionId reader = Open();
  const Handle arena = Arena(maker);
  PublishCall call = Call(arena, "frame");
  call.note = "numpy place";
  const auto made = broker().Publish(maker, call);
  ASSERT_TRUE(Read(reader, "frame", "torch hand_over").ok());
  const auto again = Read(reader, "frame", "torch hand_over");
  broker().Renote(reader, made->share, "torch place: copy requested");
  broker().EndSession(maker);
  broker().EndSession(reader);

  const Inspected found = Inspect(Open(), "frame");
  EXPECT_EQ(found.row.facts->name, "frame");
  EXPECT_EQ(found.row.maker, SessionId{});  // the maker's session has ended
  EXPECT_EQ(found.maker.who.session, maker);
  EXPECT_EQ(*found.maker.who.client, "test");
  EXPECT_EQ(found.maker.note, "numpy place");
  ASSERT_EQ(found.readers.size(), 1u);
  EXPECT_EQ(found.readers[0].who.session, reader);
  EXPECT_EQ(found.readers[0].note, "torch place: copy requested");
  EXPECT_EQ(found.readers[0].count, 2u);
  EXPECT_GE(found.readers[0].last_ns, found.readers[0].first_ns);
  EXPECT_GE(found.readers[0].first_ns, found.maker.first_ns);
}

TEST_F(HistoryTest, TheLeastRecentReadersAreForgottenFirst) {
  config_.limits.history_bytes_per_share = 3 * (sizeof(Visit) + 20);
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  Publish(maker, arena, "frame");
  std::vector<SessionId> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(Open());
  for (const SessionId reader : readers) ASSERT_TRUE(Read(reader, "frame", "n").ok());
  ASSERT_TRUE(Read(readers[0], "frame", "n").ok());  // now the second one is the least recent
  ASSERT_TRUE(Read(Open(), "frame", "n").ok());
  const Inspected found = Inspect(maker, "frame");
  EXPECT_EQ(found.forgotten, 1u);
  ASSERT_EQ(found.readers.size(), 3u);
  EXPECT_EQ(found.readers[0].who.session, readers[2]);
  EXPECT_EQ(found.readers[1].who.session, readers[0]);
}

TEST_F(HistoryTest, WhatIsKeptIsOfItsUsersDescriptionsAndNeverRefusesAReader) {
  config_.limits.object_bytes_per_uid = object_bytes::kArena + object_bytes::kShare + 100;
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  PublishCall call = Call(arena, "frame");
  call.description = std::string(90, 'd');
  call.note = std::string(20, 'n');
  EXPECT_THAT(broker().Publish(maker, call), FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  call.note.clear();
  ASSERT_TRUE(broker().Publish(maker, call).ok());
  config_.limits.object_bytes_per_uid = config_.limits.object_bytes_per_uid + object_bytes::kLease;
  ASSERT_TRUE(Read(maker, "frame", "n").ok());
  const Inspected found = Inspect(maker, "frame");
  EXPECT_TRUE(found.readers.empty());
  EXPECT_EQ(found.forgotten, 1u);
}

TEST_F(HistoryTest, WhatWasKeptIsPaidBackWithItsShare) {
  const std::string_view made = "numpy place";
  const std::string_view read = "torch hand_over";
  const std::string_view client = "test";
  constexpr size_t kDescription = 100;
  // Readers may use half of the limit, to the byte, for one share.
  const uint64_t one = kDescription + made.size() + sizeof(Visit) + client.size() + read.size();
  config_.limits.object_bytes_per_uid = 2 * (object_bytes::kArena + object_bytes::kShare + object_bytes::kLease + one);
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  for (int round = 0; round < 5; ++round) {
    PublishCall call = Call(arena, "frame");
    call.description = std::string(kDescription, 'd');
    call.note = made;
    ASSERT_TRUE(broker().Publish(maker, call).ok()) << round;
    const auto leased = Read(maker, "frame", read);
    EXPECT_EQ(Inspect(maker, "frame").readers.size(), 1u) << round;
    Release(maker, leased->shares[0].lease);
    ASSERT_TRUE(Withdraw(maker, {{.name = "frame"}}).ok());
  }
}

TEST_F(HistoryTest, NobodySaysHowAnotherRead) {
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  const auto made = Publish(maker, arena, "frame");
  const SessionId reader = Open();
  ASSERT_TRUE(Read(reader, "frame", "mine").ok());
  broker().Renote(maker, made.share, "theirs");
  broker().Renote(Open(1001), made.share, "a stranger's");
  broker().Renote(reader, ShareId{999}, "of nothing");
  broker().Renote(SessionId{999}, made.share, "nobody's");
  EXPECT_EQ(Inspect(maker, "frame").readers.at(0).note, "mine");
}

TEST_F(HistoryTest, WhatEachSessionWouldGetIsTold) {
  const SessionId maker = Open();
  const Handle arena = Arena(maker);
  Publish(maker, arena, "frame");
  const auto deaf = broker().OpenSession({.uid = 1000, .client = "deaf", .kinds = {HandleKind::kCudaIpc}});
  Open(1001);  // may not see the share
  const Inspected found = Inspect(maker, "frame");
  ASSERT_EQ(found.offers.size(), 2u);
  EXPECT_EQ(found.offers[0].why_not, "");
  EXPECT_EQ(found.offers[1].who.session, deaf->session);
  EXPECT_EQ(found.offers[1].why_not, "it is shared as memfd; this session opens cuda_ipc");
  EXPECT_THAT(broker().Inspect(Open(1001), "default", {.name = "frame"}),
              FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
}

}  // namespace
}  // namespace arraybridge::daemon
