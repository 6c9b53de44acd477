// SPDX-License-Identifier: Apache-2.0
// Channels whose broker is killed are continued by the next one: each share is received once and in order, ends stay
// open, and each end is told once of what happened to its peers.
#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "tests/unit/broker/recovery_channel_fixture.h"

namespace arraybridge::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(RecoveryChannelTest, AQueueGoesOnWithTheNextShare) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(Next(receives), 1u);
  ASSERT_TRUE(Receive(receives).ok());  // and keeps it
  const Got second = got_;
  Restart();
  ASSERT_TRUE(Receive(receives).ok());
  EXPECT_EQ(got_.facts->sent->sequence, 3u);
  EXPECT_EQ(got_.facts->sent->stream, 1u);
  EXPECT_EQ(got_.facts->sent->process_id, 4711u);
  EXPECT_EQ(*got_.facts->sent->client, "test");
  EXPECT_GT(got_.facts->sent->time_ns, 0u);
  EXPECT_EQ(got_.facts->name, "frames");
  EXPECT_EQ(got_.facts->description, "what it is");
  EXPECT_EQ(got_.offset, 512u);
  EXPECT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(receives), ElementsAre(4, 5, 6));
  got_ = second;
  Release(receives);
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ASequenceIsUsedOnceThoughAllSharesAreGone) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (uint64_t i = 1; i < 10; ++i) {
    ASSERT_TRUE(Send(sends).ok());
    EXPECT_EQ(Next(receives), i);
    Restart();
  }
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AReceivedShareWhoseAnswerIsLostIsTheNextOneAgain) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  ASSERT_TRUE(Receive(receives, 77).ok());
  for (int life = 0; life < 3; ++life) {
    Restart();
    std::vector<ChannelId> put_back;
    EXPECT_FALSE(broker().TakeBackUnanswered(receives.session, 77, &put_back).has_value());
    EXPECT_EQ(put_back.size(), 1u);
    ASSERT_TRUE(Receive(receives, 77).ok());
    EXPECT_EQ(got_.facts->sent->sequence, 1u);
  }
  broker().Resumed(receives.session);
  Release(receives);
  Restart();
  EXPECT_THAT(All(receives), ElementsAre(2, 3));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AShareIsSentOnceThoughItsRequestIsRepeated) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  ASSERT_TRUE(Send(sends, 50).ok());
  ASSERT_TRUE(Send(sends, 51).ok());
  EXPECT_EQ(Next(receives), 1u);  // it is gone
  Restart();
  EXPECT_TRUE(broker().TakeBackUnanswered(sends.session, 50).has_value());
  EXPECT_NE(broker().TakeBackUnanswered(sends.session, 51)->share, ShareId{});
  EXPECT_FALSE(broker().TakeBackUnanswered(sends.session, 52).has_value());
  EXPECT_THAT(All(receives), ElementsAre(2));
  Restart();
  EXPECT_TRUE(broker().TakeBackUnanswered(sends.session, 51).has_value());
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ARepeatedOpenGetsTheEndThatItOpened) {
  auto sends = OpenEnd(Open(), kSender, {}, 9);
  Restart();
  const auto again = broker().OpenChannel(sends.session, {"default", "frames", kSender, {}, 9});
  EXPECT_EQ(again->end, sends.id);
  EXPECT_NE(broker().OpenChannel(sends.session, {"default", "frames", kSender, {}, 10})->end, sends.id);
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AReceiverThatDiedMeanwhileIsToldToTheSender) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(Next(receives), 1u);
  ASSERT_TRUE(Receive(receives).ok());  // it is lost with its receiver
  Die(receives.session);
  EXPECT_THAT(Restart().gone, ElementsAre(receives.session));
  const Status told = Send(sends);
  EXPECT_EQ(told.reason(), "RECEIVER_DIED");
  EXPECT_THAT(told.metadata(), testing::Contains(std::pair<std::string, std::string>("shares", "2")));
  EXPECT_THAT(told.metadata(), testing::Contains(std::pair<std::string, std::string>("process_id", "4711")));
  EXPECT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_TRUE(Send(sends).ok()) << "told once";
  auto next = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(next), ElementsAre(3, 4, 5));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ASenderThatDiedMeanwhileIsToldAfterItsShares) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Send(sends).ok());
  Die(sends.session);
  Restart();
  EXPECT_EQ(Next(receives), 1u);
  Restart();
  EXPECT_EQ(Next(receives), 2u);
  EXPECT_EQ(Receive(receives).reason(), "SENDER_DIED");
  Restart();
  EXPECT_EQ(Receive(receives).reason(), "CHANNEL_EMPTY");
  auto next = OpenEnd(Open(), kSender);
  ASSERT_TRUE(Send(next).ok());
  ASSERT_TRUE(Receive(receives).ok());
  EXPECT_EQ(got_.facts->sent->sequence, 3u);
  EXPECT_EQ(got_.facts->sent->stream, 2u);
  Release(receives);
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, TheEndOfAStreamIsToldOnceAndAwaitsItsReceiver) {
  auto sends = OpenEnd(Open(), kSender);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Send(sends).ok());
  Close(sends);
  Restart();  // the channel has no end, and lingers
  auto receives = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(receives), ElementsAre(1, 2));
  Restart();
  EXPECT_EQ(Receive(receives).reason(), "CHANNEL_EMPTY") << "told by the last call";
  EXPECT_EQ(receives.seen, 1u);
  receives.seen = 0;
  EXPECT_EQ(Receive(receives).reason(), "CHANNEL_ENDED") << "a repeated request gets the same notice";
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AQueueThatWasDrainedStaysEmpty) {
  auto sends = OpenEnd(Open(), kSender);
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(broker().DrainChannel(sends.session, "default", "frames", false)->shares, 12u);
  ASSERT_TRUE(Send(sends).ok());
  Restart();  // before a sweep has settled the last ones
  auto receives = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(receives), ElementsAre(13));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, EachReceiverOfABroadcastKeepsItsPosition) {
  const ChannelTerms terms{.capacity = 8, .mode = ChannelMode::kBroadcast, .replay = 2};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto fast = OpenEnd(Open(), kReceiver, terms);
  auto slow = OpenEnd(Open(), kReceiver, terms);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Send(sends).ok());
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_EQ(Next(fast), i);
  EXPECT_EQ(Next(slow), 1u);
  Restart();
  EXPECT_EQ(Next(slow), 2u);
  ASSERT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(fast), ElementsAre(5, 6));
  EXPECT_THAT(All(slow), ElementsAre(3, 4, 5, 6));
  Restart();
  auto late = OpenEnd(Open(), kReceiver, terms);
  EXPECT_THAT(All(late), ElementsAre(5, 6));
  EXPECT_EQ(broker().OpenChannel(late.session, {"default", "frames", kReceiver, {.capacity = 9}}).status().reason(),
            "CHANNEL_CAPACITY");
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, WhatWasStatedStaysStated) {
  const ChannelTerms states{.mode = ChannelMode::kBroadcast, .drop_oldest = false, .replay = 0};
  const ChannelTerms other{.mode = ChannelMode::kBroadcast, .drop_oldest = true};
  const ChannelTerms open{.mode = ChannelMode::kBroadcast};
  auto sends = OpenEnd(Open(), kSender, states, 0, "stated");
  OpenEnd(Open(), kSender, open, 0, "open");
  Restart();
  const auto refused = broker().OpenChannel(sends.session, {"default", "stated", kReceiver, other}).status();
  EXPECT_EQ(refused.message(), "channel 'stated' has on_slow block, not drop_oldest: an end before it stated it");
  EXPECT_TRUE(broker().OpenChannel(sends.session, {"default", "open", kReceiver, other}).ok());
}

TEST_F(RecoveryChannelTest, AnEarlierEndIsToldAsOne) {
  auto sends = OpenEnd(Open(), kSender);
  ASSERT_TRUE(Send(sends).ok());
  auto dies = OpenEnd(Open(), kReceiver);
  EXPECT_EQ(Next(dies), 1u);
  ASSERT_TRUE(broker().CloseChannel(sends.session, sends.id, EndedHow::kClosed).ok());
  broker().EndSession(dies.session);
  Die(dies.session);
  Restart();
  auto again = OpenEnd(Open(), kReceiver);
  Restart();
  EXPECT_THAT(Receive(again).message(),
              testing::HasSubstr("ended before this receiver opened, less than a second ago"));
}

TEST_F(RecoveryChannelTest, AnUnansweredReceiveOfABroadcastIsRepeated) {
  const ChannelTerms terms{.capacity = 8, .mode = ChannelMode::kBroadcast};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto only = OpenEnd(Open(), kReceiver, terms);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  ASSERT_TRUE(Receive(only, 5).ok());
  Restart();
  broker().TakeBackUnanswered(only.session, 5);
  Restart();
  EXPECT_THAT(All(only), ElementsAre(1, 2, 3));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ASlowReceiverMissesTheSameShares) {
  const ChannelTerms terms{.capacity = 2, .mode = ChannelMode::kBroadcast, .drop_oldest = true};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto slow = OpenEnd(Open(), kReceiver, terms);
  ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(Next(slow), 1u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(slow), ElementsAre(4, 5));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, TheNewestShareStays) {
  const ChannelTerms terms{.mode = ChannelMode::kLatest};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto receives = OpenEnd(Open(), kReceiver, terms);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(receives), ElementsAre(3));
  auto late = OpenEnd(Open(), kReceiver, terms);
  Restart();
  EXPECT_THAT(All(late), ElementsAre(3));
  EXPECT_THAT(All(receives), IsEmpty());
  ExpectNothingIsLeft();
}

// Any order of sends, receives, lost answers, held shares and kills: two receivers get each share once, each one in
// order.
TEST_F(RecoveryChannelTest, AnyOrderOfKillsLosesAndDoublesNothing) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    auto sends = OpenEnd(Open(), kSender);
    std::vector<End> receivers;
    receivers.push_back(OpenEnd(Open(), kReceiver));
    receivers.push_back(OpenEnd(Open(), kReceiver));
    std::multiset<uint64_t> got;
    std::map<uint64_t, Got> held;
    uint64_t request = 0;
    for (int step = 0; step < 300; ++step) {
      End& to = receivers[random() % 2];
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          static_cast<void>(Send(sends, ++request));
          break;
        case 3:
        case 4:
          if (const uint64_t next = Next(to)) got.insert(next);
          break;
        case 5:
          if (Receive(to, ++request).ok()) {  // its answer is lost
            Restart();
            broker().TakeBackUnanswered(to.session, request);
            broker().Resumed(to.session);
          }
          break;
        case 6:
          if (held.empty() && Receive(to).ok()) {
            got.insert(got_.facts->sent->sequence);
            held.emplace(Number(to.session), got_);
          }
          break;
        default:
          Restart();
          for (const auto& [session, lease] : held) {
            const uint64_t number = Number(lease.lease);
            EXPECT_EQ(*broker().Release(SessionId{session}, {&number, 1}, {}, {}), 1u);
          }
          held.clear();
      }
    }
    for (End& each : receivers) {
      for (const uint64_t next : All(each)) got.insert(next);
    }
    uint64_t expected = 0;
    for (const uint64_t sequence : got) ASSERT_EQ(sequence, ++expected) << "seed " << seed;
    EXPECT_EQ(expected, broker().ListChannels(sends.session, {.page_size = 10})->rows.at(0).totals.sent);
    ExpectNothingIsLeft();
  }
}

}  // namespace
}  // namespace arraybridge::daemon
