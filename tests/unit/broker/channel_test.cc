// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

class ChannelTest : public BrokerTest {
 protected:
  ChannelEndId End(SessionId session, ChannelRole role, uint64_t capacity = 0, std::string_view name = "frames") {
    const auto opened = broker().OpenChannel(session, {"default", name, role, {capacity}});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    if (!opened.ok()) return {};
    seen_[opened->end] = opened->seen_notice;
    return opened->end;
  }
  Status Send(SessionId session, ChannelEndId end, const Handle& arena, uint64_t offset) {
    auto call = Call(arena, "", offset);
    call.channel = end;
    call.seen_notice = seen_[end];
    return Seen(end, broker().Publish(session, call).status());
  }
  // Returns the offset of the received share.
  Result<uint64_t> Receive(SessionId session, ChannelEndId end) {
    auto received = broker().Receive(session, end, seen_[end], true);
    if (!received.ok()) return Seen(end, received.status());
    last_lease_ = received->shares.at(0).lease;
    return received->shares.at(0).handle.offset;
  }
  void Close(SessionId session, ChannelEndId end, EndedHow how = EndedHow::kClosed) {
    EXPECT_TRUE(broker().CloseChannel(session, end, how).ok());
  }
  // Ends the sessions and expects that nothing is left.
  void ExpectEmptyAfter(std::initializer_list<SessionId> sessions) {
    for (const SessionId session : sessions) broker().EndSession(session);
    Sweep(Clock::now() + config_.orphan_grace.get());
    const Snapshot end = Now();
    EXPECT_EQ(end.channels + end.queued_shares + end.withdrawn_shares + end.leases + end.shares, 0u);
    EXPECT_EQ(end.arenas + end.dying_arenas + end.charged_bytes, 0u);
    EXPECT_TRUE(broker().NamespaceRows().empty());
  }

  // As a client does: the next request says that the notice was seen.
  Status Seen(ChannelEndId end, Status told) {
    facts_ = told.metadata();
    for (const auto& [key, value] : told.metadata()) {
      if (key == "notice") seen_[end] = std::stoull(value);
    }
    return told;
  }
  std::string Fact(std::string_view key) const {
    const auto found = std::ranges::find(facts_, key, &std::pair<std::string, std::string>::first);
    return found == facts_.end() ? "" : found->second;
  }

  LeaseId last_lease_{};
  std::map<ChannelEndId, uint64_t> seen_;
  Status::Metadata facts_;  // of the last refusal
};

TEST_F(ChannelTest, BringsWhatWasSentOnceAndInOrder) {
  const auto maker = Open();
  const auto reader = Open();
  const auto other = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  const auto receives_too = End(other, kReceiver);
  for (const uint64_t offset : {512u, 0u, 256u}) EXPECT_TRUE(Send(maker, sends, arena, offset).ok());
  EXPECT_EQ(Now().queued_shares, 3u);
  EXPECT_EQ(Now().shares, 0u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_EQ(*Receive(reader, receives), 512u);
  EXPECT_EQ(*Receive(other, receives_too), 0u);
  EXPECT_EQ(*Receive(reader, receives), 256u);
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
  EXPECT_EQ(Now().queued_shares, 0u);
  EXPECT_EQ(Now().leases, 3u);
  ExpectEmptyAfter({maker, reader, other});
}

TEST_F(ChannelTest, BytesInTheQueueAreNotReused) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  EXPECT_EQ(Send(maker, sends, arena, 0).code(), Code::kFailedPrecondition);  // overlaps a queued share
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  ASSERT_TRUE(Receive(reader, receives).ok());
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());  // it is leased now
  Release(reader, last_lease_);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
  EXPECT_TRUE(Send(maker, sends, arena, 0).ok());
}

TEST_F(ChannelTest, IsFullAtItsCapacity) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, 2);
  const auto receives = End(maker, kReceiver);
  EXPECT_TRUE(Send(maker, sends, arena, 0).ok());
  EXPECT_TRUE(Send(maker, sends, arena, 256).ok());
  EXPECT_THAT(Send(maker, sends, arena, 512), FailsWith(Code::kResourceExhausted, "CHANNEL_FULL"));
  ASSERT_TRUE(Receive(maker, receives).ok());
  EXPECT_TRUE(Send(maker, sends, arena, 512).ok());
}

TEST_F(ChannelTest, TheFirstWhoSaysACapacityDecides) {
  const auto one = Open();
  EXPECT_EQ(broker().OpenChannel(one, {"", "frames", kReceiver, {}})->capacity, kChannelCapacityDefault);
  EXPECT_EQ(broker().OpenChannel(one, {"", "frames", kSender, {3}})->capacity, 3u);
  EXPECT_EQ(broker().OpenChannel(one, {"", "frames", kSender, {}})->capacity, 3u);
  EXPECT_THAT(broker().OpenChannel(one, {"", "frames", kSender, {4}}),
              FailsWith(Code::kFailedPrecondition, "CHANNEL_CAPACITY"));
}

TEST_F(ChannelTest, EndsWhenTheLastSenderHasClosedAndTheQueueIsEmpty) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto one = End(maker, kSender);
  const auto two = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, one, arena, 0).ok());
  Close(maker, one);
  ASSERT_TRUE(Receive(reader, receives).ok());
  // the other sender may still send
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
  ASSERT_TRUE(Send(maker, two, arena, 256).ok());
  Close(maker, two);
  ASSERT_TRUE(Receive(reader, receives).ok());
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  EXPECT_THAT(Send(maker, two, arena, 512), FailsWith(Code::kNotFound, "CHANNEL_NOT_OPEN"));
  const auto three = End(maker, kSender);  // the next stream
  ASSERT_TRUE(Send(maker, three, arena, 512).ok());
  EXPECT_EQ(*Receive(reader, receives), 512u);
  ExpectEmptyAfter({maker, reader});
}

TEST_F(ChannelTest, TellsThatASenderDiedAfterWhatItSent) {
  const auto maker = Open();
  const auto reader = Open();
  const auto sends = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, sends, Arena(maker), 256).ok());
  broker().EndSession(maker);
  EXPECT_EQ(*Receive(reader, receives), 256u);
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kAborted, "SENDER_DIED"));
  ExpectEmptyAfter({reader});
}

TEST_F(ChannelTest, ALostSenderIsToldOnceAndTheNextOneGoesOn) {
  const auto reader = Open();
  const auto receives = End(reader, kReceiver);
  for (const uint64_t stream : {1u, 2u, 3u}) {
    const auto maker = Open();
    const auto sends = End(maker, kSender);
    const auto arena = Arena(maker);
    for (const uint64_t offset : {0u, 256u}) ASSERT_TRUE(Send(maker, sends, arena, offset).ok());
    ASSERT_TRUE(Receive(reader, receives).ok());
    if (stream == 2) Close(maker, sends, EndedHow::kAbandoned);
    broker().EndSession(maker);
    ASSERT_TRUE(Receive(reader, receives).ok()) << "what it sent comes first";
    EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kAborted, stream == 2 ? "SENDER_ABANDONED" : "SENDER_DIED"));
    EXPECT_EQ(Fact("stream"), std::to_string(stream));
    EXPECT_EQ(Fact("shares"), "2");
    EXPECT_EQ(Fact("missing"), "false");
    EXPECT_EQ(Fact("client"), "test");
    EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kNotFound, "CHANNEL_EMPTY")) << "it is told once";
  }
  const auto maker = Open();
  Close(maker, End(maker, kSender));
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  EXPECT_EQ(Fact("stream"), "4");
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
  ExpectEmptyAfter({reader, maker});
}

TEST_F(ChannelTest, ARequestThatIsRepeatedGetsTheSameNotice) {
  const auto maker = Open();
  const auto reader = Open();
  const auto receives = End(reader, kReceiver);
  Close(maker, End(maker, kSender));
  const uint64_t before = seen_[receives];
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  seen_[receives] = before;  // the answer was lost, or another thread waits in this end
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
}

TEST_F(ChannelTest, EveryReceiverIsToldAndSharesAfterANoticeWait) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto one = End(reader, kReceiver);
  const auto two = End(reader, kReceiver);
  Close(maker, End(maker, kSender), EndedHow::kAbandoned);
  const auto sends = End(maker, kSender);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  EXPECT_THAT(Receive(reader, one), FailsWith(Code::kAborted, "SENDER_ABANDONED"));
  EXPECT_EQ(*Receive(reader, one), 0u);
  EXPECT_THAT(Receive(reader, two), FailsWith(Code::kAborted, "SENDER_ABANDONED"));
  EXPECT_THAT(Receive(reader, two), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
}

TEST_F(ChannelTest, AReceiverThatComesLateIsToldOfAnEndButNotOfEarlierDeaths) {
  const auto maker = Open();
  const auto reader = Open();
  const auto keeps = End(reader, kReceiver);  // the channel stays
  Close(maker, End(maker, kSender), EndedHow::kAbandoned);
  EXPECT_THAT(Receive(reader, End(reader, kReceiver)), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
  const auto sends = End(maker, kSender);
  const auto arena = Arena(maker);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  Close(maker, sends);
  const auto late = End(reader, kReceiver);
  EXPECT_EQ(*Receive(reader, late), 0u);
  EXPECT_THAT(Receive(reader, late), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  EXPECT_THAT(Receive(reader, End(reader, kReceiver)), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  End(maker, kSender);  // the next stream runs
  EXPECT_THAT(Receive(reader, End(reader, kReceiver)), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
  EXPECT_THAT(Receive(reader, keeps), FailsWith(Code::kAborted, "SENDER_ABANDONED"));
  EXPECT_THAT(Receive(reader, keeps), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
}

TEST_F(ChannelTest, WhenTheLastReceiverClosesWhatIsQueuedIsDroppedAndSendersAreToldOnce) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  Close(reader, receives);
  EXPECT_EQ(Now().queued_shares, 0u);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
  EXPECT_THAT(Send(maker, sends, arena, 0), FailsWith(Code::kFailedPrecondition, "NO_RECEIVER"));
  EXPECT_TRUE(Send(maker, sends, arena, 0).ok()) << "it queues for the next receiver";
  const auto again = End(maker, kReceiver);
  EXPECT_EQ(*Receive(maker, again), 0u);
  ExpectEmptyAfter({maker, reader});
}

TEST_F(ChannelTest, WhenTheLastReceiverDiesWhatIsQueuedWaitsForTheNextOne) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, 2);
  End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  broker().EndSession(reader);
  EXPECT_EQ(Now().queued_shares, 1u);
  EXPECT_THAT(Send(maker, sends, arena, 256), FailsWith(Code::kAborted, "RECEIVER_DIED"));
  EXPECT_EQ(Fact("shares"), "0");
  ASSERT_TRUE(Send(maker, sends, arena, 256).ok());
  EXPECT_THAT(Send(maker, sends, arena, 512), FailsWith(Code::kResourceExhausted, "CHANNEL_FULL"));
  Close(maker, sends);
  const auto next = Open();
  const auto receives = End(next, kReceiver);
  EXPECT_EQ(*Receive(next, receives), 0u);
  EXPECT_EQ(*Receive(next, receives), 256u);
  EXPECT_THAT(Receive(next, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  ExpectEmptyAfter({maker, next});
}

TEST_F(ChannelTest, QueuedSharesWithoutAnyEndGoWithTheGrace) {
  const auto maker = Open();
  const auto reader = Open();
  const auto sends = End(maker, kSender);
  End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, sends, Arena(maker), 0).ok());
  Close(maker, sends);
  broker().EndSession(reader);
  EXPECT_EQ(Now().channels, 1u);
  EXPECT_EQ(Now().queued_shares, 1u);
  ExpectEmptyAfter({maker});
}

TEST_F(ChannelTest, AnEndThatDoesNotAskMissesTheOldestNotices) {
  const auto maker = Open();
  const auto reader = Open();
  const auto receives = End(reader, kReceiver);
  for (size_t i = 0; i < Notices::kMost + 3; ++i) Close(maker, End(maker, kSender));
  size_t told = 0;
  while (Receive(reader, receives).status().reason() == "CHANNEL_ENDED") ++told;
  EXPECT_EQ(told, Notices::kMost);
  EXPECT_EQ(seen_[receives], Notices::kMost + 3);
}

TEST_F(ChannelTest, WaitsForItsFirstReceiverUntilTheGraceIsOver) {
  const auto maker = Open();
  const auto sends = End(maker, kSender);
  ASSERT_TRUE(Send(maker, sends, Arena(maker), 256).ok());
  Close(maker, sends);
  broker().EndSession(maker);
  EXPECT_TRUE(Sweep().more_later);
  const auto reader = Open();
  const auto receives = End(reader, kReceiver);
  EXPECT_EQ(*Receive(reader, receives), 256u);
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  EXPECT_EQ(Fact("earlier"), "") << "its array waited";
  Close(reader, receives);
  EXPECT_EQ(Now().channels, 0u);

  const auto late = Open();
  Close(late, End(late, kSender));
  EXPECT_EQ(Now().channels, 1u);
  Sweep(Clock::now() + config_.orphan_grace.get() + std::chrono::seconds(1));
  EXPECT_EQ(Now().channels, 0u);
  ExpectEmptyAfter({reader, late});
}

TEST_F(ChannelTest, AReceiverThatComesBackAfterTheLastShareIsToldThatTheStreamHasEnded) {
  for (const bool sender_closes_first : {true, false}) {
    const auto maker = Open();
    const auto reader = Open();
    const auto sends = End(maker, kSender);
    const auto receives = End(reader, kReceiver);
    ASSERT_TRUE(Send(maker, sends, Arena(maker), 256).ok());
    ASSERT_EQ(*Receive(reader, receives), 256u);
    if (sender_closes_first) Close(maker, sends);
    broker().EndSession(reader);
    if (!sender_closes_first) Close(maker, sends);
    EXPECT_EQ(Now().channels, 1u);
    const ChannelRow row = broker().ListChannels({}, {.everybody = true, .ends = true, .page_size = 9})->rows.at(0);
    ASSERT_EQ(row.ends.size(), 2u);
    EXPECT_EQ(row.ends.at(0).role, kSender);
    EXPECT_EQ(row.ends.at(1).role, kReceiver);
    for (const ChannelRow::End& end : row.ends) {
      EXPECT_EQ(end.shares, 1u);
      EXPECT_GT(end.closed.count(), 0);
    }

    const auto again = Open();
    const auto resumes = End(again, kReceiver);
    const Status told = Receive(again, resumes).status();
    EXPECT_THAT(told, FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
    EXPECT_THAT(told.message(), testing::HasSubstr("ended before this receiver opened, less than a second ago"));
    EXPECT_EQ(Fact("earlier"), "true");
    Close(again, resumes);
    EXPECT_EQ(Now().channels, 0u) << "a receiver that closes in order is not awaited";
    ExpectEmptyAfter({maker, again});
  }
}

TEST_F(ChannelTest, AReceiverThatGaveUpAfterItWasToldOfTheEndIsNotAwaited) {
  const auto maker = Open();
  const auto reader = Open();
  const auto sends = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  Close(maker, sends);
  EXPECT_THAT(Receive(reader, receives), FailsWith(Code::kOutOfRange, "CHANNEL_ENDED"));
  Close(reader, receives, EndedHow::kAbandoned);
  EXPECT_EQ(Now().channels, 0u);
  ExpectEmptyAfter({maker, reader});
}

TEST_F(ChannelTest, NoReceiverIsAwaitedAfterADeathOfBothEnds) {
  const auto maker = Open();
  const auto reader = Open();
  End(maker, kSender);
  End(reader, kReceiver);
  broker().EndSession(reader);
  broker().EndSession(maker);
  EXPECT_EQ(Now().channels, 0u);
  ExpectEmptyAfter({});
}

TEST_F(ChannelTest, NoReceiverIsAwaitedWhenASenderDiesThatHasSentNothing) {
  const auto maker = Open();
  End(maker, kSender);
  broker().EndSession(maker);
  EXPECT_EQ(Now().channels, 0u);
  ExpectEmptyAfter({});
}

TEST_F(ChannelTest, WhatDidNotReachItsReceiverIsNext) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender);
  const auto receives = End(maker, kReceiver);
  for (const uint64_t offset : {0u, 256u}) ASSERT_TRUE(Send(maker, sends, arena, offset).ok());
  ASSERT_EQ(*Receive(maker, receives), 0u);
  const Received undelivered{last_lease_, receives};
  EXPECT_EQ(broker().PutBack(maker, {&undelivered, 1}).size(), 1u);
  EXPECT_EQ(Now().leases, 0u);
  EXPECT_EQ(*Receive(maker, receives), 0u);
  EXPECT_EQ(*Receive(maker, receives), 256u);
  // The last end is closed, so the channel is gone.
  Close(maker, receives);
  const Received last{last_lease_, receives};
  EXPECT_TRUE(broker().PutBack(maker, {&last, 1}).empty());
  ExpectEmptyAfter({maker});
}

TEST_F(ChannelTest, AFailedExportLosesNothing) {
  const auto maker = Open();
  const auto reader = Open();
  const auto sends = End(maker, kSender);
  const auto receives = End(reader, kReceiver);
  ASSERT_TRUE(Send(maker, sends, Arena(maker), 0).ok());
  world().export_fails = true;
  EXPECT_FALSE(Receive(reader, receives).ok());
  EXPECT_EQ(Now().leases, 0u);
  EXPECT_EQ(Now().queued_shares, 1u);
  world().export_fails = false;
  EXPECT_EQ(*Receive(reader, receives), 0u);
}

TEST_F(ChannelTest, AnEndIsItsSessionsAndHasOneRole) {
  const auto maker = Open();
  const auto stranger = Open(2000);
  const auto sends = End(maker, kSender);
  const auto receives = End(stranger, kReceiver);  // a channel of the same name of another user
  EXPECT_THAT(Receive(maker, sends), FailsWith(Code::kFailedPrecondition, "WRONG_END"));
  EXPECT_THAT(Receive(stranger, sends), FailsWith(Code::kNotFound, "CHANNEL_NOT_OPEN"));
  EXPECT_THAT(broker().CloseChannel(stranger, sends, EndedHow::kClosed),
              FailsWith(Code::kNotFound, "CHANNEL_NOT_OPEN"));
  ASSERT_TRUE(Send(maker, sends, Arena(maker), 0).ok());
  EXPECT_THAT(Receive(stranger, receives), FailsWith(Code::kNotFound, "CHANNEL_EMPTY"));
}

TEST_F(ChannelTest, AnArenaOfAnotherNamespaceIsRefused) {
  const auto maker = Open();
  auto call = Call(Arena(maker, kPage, "other"), "", 0, 256, "other");
  call.channel = End(maker, kSender);
  EXPECT_THAT(broker().Publish(maker, call), FailsWith(Code::kFailedPrecondition, "OTHER_NAMESPACE"));
}

TEST_F(ChannelTest, Limits) {
  config_.limits.channels_per_namespace = 2;
  config_.limits.members_per_channel = 2;
  config_.limits.channel_capacity_max = 8;
  config_.limits.leases_per_session = 1;
  const auto one = Open();
  const auto sends = End(one, kSender, 8, "a");
  const auto receives = End(one, kReceiver, 0, "a");
  EXPECT_THAT(broker().OpenChannel(one, {"", "a", kReceiver, {}}),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_MEMBERS"));
  End(one, kSender, 0, "b");
  EXPECT_THAT(broker().OpenChannel(one, {"", "c", kSender, {}}),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_CHANNELS"));
  EXPECT_THAT(broker().OpenChannel(one, {"", "b", kSender, {9}}),
              FailsWith(Code::kInvalidArgument, "CHANNEL_CAPACITY"));
  EXPECT_THAT(broker().OpenChannel(one, {"", "", kSender, {}}), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
  const auto arena = Arena(one);
  for (const uint64_t offset : {0u, 256u}) ASSERT_TRUE(Send(one, sends, arena, offset).ok());
  ASSERT_TRUE(Receive(one, receives).ok());
  EXPECT_THAT(Receive(one, receives), FailsWith(Code::kResourceExhausted, "TOO_MANY_LEASES"));
  EXPECT_EQ(Now().queued_shares, 1u);  // still there
}

}  // namespace
}  // namespace arraybridge::daemon
