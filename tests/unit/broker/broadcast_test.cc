// SPDX-License-Identifier: Apache-2.0
// Channels of mode broadcast and latest, draining, and what is said of each share.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/boundary/boot_time.h"
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

constexpr ChannelTerms kBroadcast{.mode = ChannelMode::kBroadcast};
constexpr ChannelTerms kLatest{.mode = ChannelMode::kLatest};

class BroadcastTest : public BrokerTest {
 protected:
  ChannelEndId End(SessionId session, ChannelRole role, const ChannelTerms& terms = {}) {
    const auto opened = broker().OpenChannel(session, {"", "frames", role, terms});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    if (!opened.ok()) return {};
    seen_[opened->end] = opened->seen_notice;
    return opened->end;
  }
  Status Send(SessionId session, ChannelEndId end, const Handle& arena, uint64_t offset) {
    auto call = Call(arena, "", offset);
    call.channel = end;
    return broker().Publish(session, call).status();
  }
  // The offset of the received share; 1: there was none.
  uint64_t Receive(SessionId session, ChannelEndId end) {
    auto received = broker().Receive(session, end, seen_[end], true);
    if (!received.ok()) {
      EXPECT_EQ(received.status().reason(), "CHANNEL_EMPTY");
      return 1;
    }
    last_ = std::move(received->shares.at(0));
    return last_.handle.offset;
  }
  std::vector<uint64_t> ReceiveAll(SessionId session, ChannelEndId end) {
    std::vector<uint64_t> offsets;
    for (uint64_t offset = Receive(session, end); offset != 1; offset = Receive(session, end)) {
      offsets.push_back(offset);
      Release(session, last_.lease);
    }
    return offsets;
  }
  // Takes all shares; the reason of the refusal after them.
  std::string ReceiveSome(SessionId session, ChannelEndId end, uint64_t seen) {
    while (true) {
      const auto received = broker().Receive(session, end, seen, true);
      if (!received.ok()) return std::string(received.status().reason());
    }
  }
  ChannelRow Row(bool ends = false) {
    ListFilter filter{.page_size = 9};
    filter.everybody = true;
    filter.ends = ends;
    return broker().ListChannels({}, filter)->rows.at(0);
  }

  LeasedShare last_;
  std::map<ChannelEndId, uint64_t> seen_;
};

using Offsets = std::vector<uint64_t>;

TEST_F(BroadcastTest, EveryReceiverSeesEveryShareAndTheBytesExistOnce) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, kBroadcast);
  const auto one = End(reader, kReceiver);
  const auto two = End(maker, kReceiver, kBroadcast);
  for (const uint64_t offset : {0u, 256u, 512u}) ASSERT_TRUE(Send(maker, sends, arena, offset).ok());
  EXPECT_EQ(Now().queued_shares, 3u);
  EXPECT_EQ(ReceiveAll(reader, one), (Offsets{0, 256, 512}));
  EXPECT_EQ(Now().queued_shares, 3u);
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty()) << "the other one still reads them";
  EXPECT_EQ(ReceiveAll(maker, two), (Offsets{0, 256, 512}));
  EXPECT_EQ(Now().queued_shares, 0u);
  EXPECT_FALSE(broker().TakeReturned(maker, 9).empty());
}

TEST_F(BroadcastTest, TheSlowestReceiverBoundsTheSender) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, {.capacity = 2, .mode = ChannelMode::kBroadcast});
  const auto fast = End(maker, kReceiver);
  const auto slow = End(maker, kReceiver);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  ASSERT_TRUE(Send(maker, sends, arena, 256).ok());
  EXPECT_EQ(ReceiveAll(maker, fast), (Offsets{0, 256}));
  EXPECT_THAT(Send(maker, sends, arena, 512), FailsWith(Code::kResourceExhausted, "CHANNEL_FULL"));
  EXPECT_EQ(Receive(maker, slow), 0u);
  EXPECT_TRUE(Send(maker, sends, arena, 512).ok());
  ASSERT_TRUE(broker().CloseChannel(maker, slow, EndedHow::kClosed).ok());
  EXPECT_TRUE(Send(maker, sends, arena, 768).ok()) << "it waits for no receiver that has gone";
  EXPECT_EQ(ReceiveAll(maker, fast), (Offsets{512, 768}));
}

TEST_F(BroadcastTest, WithDropOldestASlowReceiverMissesTheOldestAndItIsCounted) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, {.capacity = 2, .mode = ChannelMode::kBroadcast, .drop_oldest = true});
  const auto fast = End(maker, kReceiver);
  const auto slow = End(maker, kReceiver);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(Send(maker, sends, arena, 256 * i).ok());
    EXPECT_EQ(ReceiveAll(maker, fast), Offsets{256 * i});
  }
  EXPECT_EQ(Now().queued_shares, 2u);
  const ChannelRow row = Row(true);
  EXPECT_EQ(row.totals.sent, 5u);
  EXPECT_EQ(row.totals.received, 5u);
  EXPECT_EQ(row.totals.dropped, 3u);
  ASSERT_EQ(row.ends.size(), 3u);
  EXPECT_EQ(row.ends[0].shares, 5u);
  EXPECT_EQ(row.ends[1].waiting + row.ends[1].dropped, 0u);
  EXPECT_EQ(row.ends[2].waiting, 2u);
  EXPECT_EQ(row.ends[2].dropped, 3u);
  EXPECT_EQ(ReceiveAll(maker, slow), (Offsets{768, 1024}));
  EXPECT_EQ(Now().channel_totals.dropped, 3u);
}

TEST_F(BroadcastTest, LatestBringsTheNewestAlsoToOneThatComesLate) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, kLatest);
  const auto reads = End(maker, kReceiver);
  EXPECT_EQ(ReceiveAll(maker, reads), Offsets{});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(maker, sends, arena, 256 * i).ok());
  EXPECT_EQ(Now().queued_shares, 1u);
  EXPECT_EQ(ReceiveAll(maker, reads), Offsets{768});
  const auto late = End(maker, kReceiver, kLatest);
  EXPECT_EQ(ReceiveAll(maker, late), Offsets{768});
  ASSERT_TRUE(broker().CloseChannel(maker, reads, EndedHow::kClosed).ok());
  ASSERT_TRUE(broker().CloseChannel(maker, late, EndedHow::kClosed).ok());
  EXPECT_TRUE(Send(maker, sends, arena, 1024).ok()) << "receivers come and go";
}

TEST_F(BroadcastTest, AShareThatNoReceiverSeesEndsAtOnceAndReplayKeepsTheLast) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, kBroadcast);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(Send(maker, sends, arena, 256 * (i % 16)).ok()) << "no one waits";
  EXPECT_EQ(Now().queued_shares, 0u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  broker().EndSession(maker);
  Sweep(Clock::now() + config_.orphan_grace.get());

  const auto other = Open();
  const auto own = Arena(other);
  const auto replays = End(other, kSender, {.mode = ChannelMode::kBroadcast, .replay = 3});
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Send(other, replays, own, 256 * i).ok());
  EXPECT_EQ(Now().queued_shares, 3u);
  const auto late = End(other, kReceiver);
  ASSERT_TRUE(Send(other, replays, own, 1280).ok());
  EXPECT_EQ(ReceiveAll(other, late), (Offsets{512, 768, 1024, 1280}));
}

TEST_F(BroadcastTest, ALateReceiverIsToldOfNoStreamBeforeItsTime) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const ChannelTerms replays{.mode = ChannelMode::kBroadcast, .replay = 4};
  uint64_t offset = 0;
  for (const EndedHow how : {EndedHow::kClosed, EndedHow::kAbandoned}) {
    const auto first = End(maker, kSender, replays);
    ASSERT_TRUE(Send(maker, first, arena, offset).ok());
    ASSERT_TRUE(broker().CloseChannel(maker, first, how).ok());
    const auto second = End(maker, kSender, replays);
    const auto late = End(maker, kReceiver);
    ASSERT_TRUE(Send(maker, second, arena, offset + 256).ok());
    const Offsets got = ReceiveAll(maker, late);
    ASSERT_GE(got.size(), 2u);
    EXPECT_EQ(got.back(), offset + 256) << "stream 2 runs";
    EXPECT_EQ(got[got.size() - 2], offset);
    offset += 512;
    ASSERT_TRUE(broker().CloseChannel(maker, second, EndedHow::kClosed).ok());
    EXPECT_EQ(broker().Receive(maker, late, seen_[late], true).status().reason(), "CHANNEL_ENDED");
    const auto after = broker().OpenChannel(maker, {"", "frames", kReceiver, {}});
    EXPECT_EQ(ReceiveSome(maker, after->end, after->seen_notice), "CHANNEL_ENDED") << "no stream runs";
  }
}

TEST_F(BroadcastTest, AReceiverThatCannotOpenTheMemoryMissesItAndHoldsNobodyUp) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, {.capacity = 1, .mode = ChannelMode::kBroadcast});
  const auto blind = broker().OpenSession({.uid = 1000, .client = "blind", .kinds = {HandleKind::kCudaVmm}})->session;
  const auto reads = End(blind, kReceiver);
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(Send(maker, sends, arena, 256 * i).ok());
    EXPECT_FALSE(broker().Receive(blind, reads, seen_[reads], true).ok());
    EXPECT_EQ(broker().Receive(blind, reads, seen_[reads], true).status().reason(), "CHANNEL_EMPTY") << "told once";
  }
  EXPECT_EQ(Row(true).ends.at(1).dropped, 2u);
}

TEST_F(BroadcastTest, TermsAreAgreedOnByAllEnds) {
  const auto maker = Open();
  const auto open = [&](const ChannelTerms& terms, std::string_view name = "frames") {
    return broker().OpenChannel(maker, {"", name, kReceiver, terms});
  };
  EXPECT_EQ(open({})->mode, ChannelMode::kUnset);
  EXPECT_EQ(open(kLatest)->capacity, 1u);
  EXPECT_EQ(open({})->mode, ChannelMode::kLatest);
  EXPECT_THAT(open(kBroadcast), FailsWith(Code::kFailedPrecondition, "CHANNEL_MODE"));
  EXPECT_THAT(open({.mode = ChannelMode::kQueue}), FailsWith(Code::kFailedPrecondition, "CHANNEL_MODE"));
  EXPECT_THAT(open({.capacity = 4}), FailsWith(Code::kFailedPrecondition, "CHANNEL_CAPACITY"));
  EXPECT_THAT(open({.capacity = 2, .mode = ChannelMode::kLatest}, "new"),
              FailsWith(Code::kInvalidArgument, "CHANNEL_CAPACITY"));
  EXPECT_THAT(open({.replay = 1}, "new"), FailsWith(Code::kInvalidArgument, "CHANNEL_MODE"));
  EXPECT_THAT(open({.mode = ChannelMode::kQueue, .drop_oldest = true}, "new"),
              FailsWith(Code::kInvalidArgument, "CHANNEL_MODE"));
  EXPECT_THAT(open({.mode = ChannelMode::kBroadcast, .replay = 17}, "new"),
              FailsWith(Code::kFailedPrecondition, "CHANNEL_CAPACITY"));
  EXPECT_THAT(open({.capacity = 2, .mode = ChannelMode::kBroadcast, .replay = 3}, "new"),
              FailsWith(Code::kFailedPrecondition, "CHANNEL_CAPACITY"));
  const uint64_t too_many = config_.limits.channel_capacity_max + 1;
  EXPECT_THAT(open({.mode = ChannelMode::kBroadcast, .replay = too_many}, "new"),
              FailsWith(Code::kInvalidArgument, "CHANNEL_CAPACITY"));
  // A channel whose ends state nothing is a queue from its first share on.
  const auto arena = Arena(maker);
  const auto sends = broker().OpenChannel(maker, {"", "plain", kSender, {}})->end;
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  EXPECT_THAT(open(kBroadcast, "plain"), FailsWith(Code::kFailedPrecondition, "CHANNEL_MODE"));
  EXPECT_TRUE(open({.mode = ChannelMode::kQueue}, "plain").ok());
}

TEST_F(BroadcastTest, WhatAnEndDoesNotStateIsAsOthersStateIt) {
  const auto camera = broker().OpenSession({.uid = 1000, .process_id = 4711, .client = "camera"})->session;
  const auto viewer = broker().OpenSession({.uid = 1000, .process_id = 4712, .client = "viewer"})->session;
  const ChannelTerms all{.capacity = 4, .mode = ChannelMode::kBroadcast, .drop_oldest = true, .replay = 2};
  for (const bool stated_first : {true, false}) {
    const std::string name = stated_first ? "first" : "later";
    const auto open = [&](SessionId session, ChannelRole role, const ChannelTerms& terms) {
      return broker().OpenChannel(session, {"", name, role, terms});
    };
    ASSERT_TRUE(open(camera, kSender, stated_first ? all : kBroadcast).ok());
    ASSERT_TRUE(open(viewer, kReceiver, stated_first ? kBroadcast : all).ok());
    const ChannelRow row =
        broker().ListChannels({}, {.everybody = true, .name_prefix = name, .page_size = 9})->rows.at(0);
    EXPECT_TRUE(row.terms.drops());
    EXPECT_EQ(row.terms.replayed(), 2u);
    EXPECT_EQ(row.capacity, 4u);
    const std::string who =
        stated_first ? "the sender 'camera' (process 4711)" : "the receiver 'viewer' (process 4712)";
    const auto refused = [&](const ChannelTerms& terms, const std::string& what) {
      const Status status = open(viewer, kReceiver, terms).status();
      EXPECT_EQ(status.message(), "channel '" + name + "' has " + what + ": " + who + " stated it");
    };
    refused({.mode = ChannelMode::kBroadcast, .drop_oldest = false}, "on_slow drop_oldest, not block");
    refused({.mode = ChannelMode::kBroadcast, .replay = 0}, "replay 2, not 0");
    refused({.capacity = 3}, "capacity 4, not 3");
    const std::string sender = "the sender 'camera' (process 4711)";
    EXPECT_EQ(open(viewer, kReceiver, kLatest).status().message(),
              "channel '" + name + "' has mode broadcast, not latest: " + sender + " stated it");
  }
}

TEST_F(BroadcastTest, EachShareSaysHowItCameIntoTheChannel) {
  const auto maker = broker().OpenSession({.uid = 1000, .process_id = 4711, .client = "camera"})->session;
  const auto arena = Arena(maker);
  const uint64_t before = BootTime();
  for (uint64_t stream = 1; stream <= 2; ++stream) {
    const auto sends = End(maker, kSender);
    const auto reads = End(maker, kReceiver);
    for (uint64_t i = 1; i <= 2; ++i) {
      ASSERT_TRUE(Send(maker, sends, arena, 256 * i).ok());
      ASSERT_EQ(Receive(maker, reads), 256 * i);
      const SentFacts& sent = *last_.facts->sent;
      EXPECT_EQ(sent.sequence, stream == 1 ? i : i + 2);
      EXPECT_EQ(sent.stream, stream);
      EXPECT_EQ(sent.process_id, 4711u);
      EXPECT_EQ(*sent.client, "camera");
      EXPECT_GE(sent.time_ns, before);
      EXPECT_LE(sent.time_ns, BootTime());
      Release(maker, last_.lease);
    }
    End(maker, kReceiver);  // the channel stays
    ASSERT_TRUE(broker().CloseChannel(maker, sends, EndedHow::kClosed).ok());
    ASSERT_TRUE(broker().CloseChannel(maker, reads, EndedHow::kClosed).ok());
  }
}

TEST_F(BroadcastTest, WhatWasNotDeliveredIsDeliveredAgainToItsReceiverAlone) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const auto sends = End(maker, kSender, {.mode = ChannelMode::kBroadcast, .replay = 1});
  const auto reads = End(reader, kReceiver);
  const auto other = End(maker, kReceiver);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  EXPECT_EQ(ReceiveAll(maker, other), Offsets{0});
  ASSERT_EQ(Receive(reader, reads), 0u);
  const Received undelivered{last_.lease, last_.receiver};
  EXPECT_EQ(broker().PutBack(reader, {&undelivered, 1}).size(), 1u);
  EXPECT_EQ(ReceiveAll(maker, other), Offsets{});
  EXPECT_EQ(ReceiveAll(reader, reads), Offsets{0});
  EXPECT_EQ(Row().totals.received, 2u);
}

TEST_F(BroadcastTest, DrainingDropsWhatIsQueuedAndAChannelWithoutEndsGoes) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto drain = [&](bool remove = false) { return broker().DrainChannel(maker, "", "frames", remove); };
  EXPECT_THAT(drain(), FailsWith(Code::kNotFound, "CHANNEL_NOT_FOUND"));
  const auto sends = End(maker, kSender);
  for (uint64_t i = 0; i < 12; ++i) ASSERT_TRUE(Send(maker, sends, arena, 256 * i).ok());
  EXPECT_THAT(drain(true), FailsWith(Code::kFailedPrecondition, "CHANNEL_IN_USE"));
  EXPECT_EQ(Now().queued_shares, 12u);
  EXPECT_EQ(drain()->shares, 12u);
  Sweep(Clock::now());
  EXPECT_EQ(Now().queued_shares, 0u);
  EXPECT_EQ(Row().totals.dropped, 12u);
  ASSERT_TRUE(Send(maker, sends, arena, 0).ok());
  ASSERT_TRUE(broker().CloseChannel(maker, sends, EndedHow::kClosed).ok());
  EXPECT_EQ(Now().channels, 1u) << "a receiver may come";
  EXPECT_EQ(drain(true)->shares, 1u);
  EXPECT_EQ(Now().channels, 0u);
  Sweep(Clock::now());
  EXPECT_EQ(Now().withdrawn_shares, 0u);
}

TEST_F(BroadcastTest, AnotherUserDrainsNothing) {
  const auto maker = Open();
  End(maker, kSender);
  const auto other = broker().OpenSession({.uid = 1001, .client = "other"})->session;
  EXPECT_THAT(broker().DrainChannel(other, "", "frames", false), FailsWith(Code::kNotFound, "CHANNEL_NOT_FOUND"));
  EXPECT_EQ(Row(true).ends.at(0).session, maker);
}

}  // namespace
}  // namespace arraybridge::daemon
