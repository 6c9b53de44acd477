// SPDX-License-Identifier: Apache-2.0
// Direct channels whose broker is killed are continued by the next one.
#include <gmock/gmock.h>

#include <string>

#include "tests/unit/broker/recovery_channel_fixture.h"

namespace arraybridge::daemon {
namespace {

using testing::ElementsAre;

TEST_F(RecoveryDirectTest, GoesOnAndIsRevokedByTheNextBroker) {
  ASSERT_TRUE(Send(sends_).ok());
  EXPECT_EQ(Next(receives_), 1u);
  Connect();
  for (int i = 0; i < 2; ++i) SendDirect();
  TakeDirect();
  Restart();
  EXPECT_EQ(control().revoked, direct_channel::kStands);
  SendDirect();
  EXPECT_EQ(Receive(receives_).reason(), "CHANNEL_IS_DIRECT");
  EXPECT_EQ(broker().Publish(sends_.session, Call(sends_)).status().reason(), "CHANNEL_IS_DIRECT");
  --sends_.sent;
  Restart();
  Revoke(broker().DirectChannelOf(sends_.session, sends_.id));
  EXPECT_EQ(control().revoked, direct_channel::kRevoked);
  EXPECT_EQ(control().counted, 3u);
  EXPECT_EQ(control().taken, 1u);
  char byte = 0;
  EXPECT_EQ(::read(consumer_doorbell_.get(), &byte, 1), 1);
  ASSERT_TRUE(Send(sends_).ok());
  EXPECT_THAT(All(receives_), ElementsAre(3, 4, 5));
  Restart();
  const uint64_t number = control().number;
  broker().ForgetDirectChannels(sends_.session, {&number, 1});
  EXPECT_FALSE(store_->Has("d1"));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, AShareBetweenItsEntriesKeepsItsPlace) {
  Connect();
  SendDirect();
  TakeDirect();
  ASSERT_TRUE(Send(sends_).ok());
  EXPECT_EQ(control().calls, 1u);
  Restart();
  EXPECT_EQ(control().calls, 1u);
  SendDirect();
  EXPECT_EQ(Next(receives_), 2u);
  EXPECT_EQ(Receive(receives_).reason(), "CHANNEL_IS_DIRECT");
  Revoke(broker().DirectChannelOf(sends_.session, sends_.id));
  EXPECT_EQ(Next(receives_), 3u);
  ExpectNothingIsLeft();
}

// The receiver moves on after the counts were decided, and the first entries are published: none comes twice.
TEST_F(RecoveryDirectTest, AnEndThatWasBegunIsFinished) {
  for (uint64_t most = 0; most <= 4; ++most) {
    Connect();
    for (int i = 0; i < 4; ++i) SendDirect();
    TakeDirect();
    EXPECT_THROW(Revoke(broker().DirectChannelOf(sends_.session, sends_.id), most), Killed);
    TakeDirect();
    Restart();
    EXPECT_EQ(control().revoked, direct_channel::kRevoked);
    EXPECT_EQ(control().taken, 1u);
    EXPECT_EQ(All(receives_).size(), 3u) << most;
    const uint64_t number = control().number;
    broker().ForgetDirectChannels(sends_.session, {&number, 1});
  }
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, OneThatIsNotMappedYetEnds) {
  ASSERT_TRUE(broker().ExportDirectChannel(sends_.session, sends_.id).ok());
  Restart();
  EXPECT_EQ(broker().DirectChannelOf(sends_.session, sends_.id), nullptr);
  EXPECT_FALSE(store_->Has("d1"));
  Connect();
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, TheEntriesOfADeadSenderAreReceived) {
  Connect();
  for (int i = 0; i < 3; ++i) SendDirect();
  TakeDirect();
  Die(sends_.session);
  Restart();
  EXPECT_EQ(Next(receives_), 2u);
  EXPECT_EQ(Next(receives_), 3u);
  const Status told = Receive(receives_);
  EXPECT_EQ(told.reason(), "SENDER_DIED");
  EXPECT_THAT(told.metadata(), testing::Contains(std::pair<std::string, std::string>("shares", "3")));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, TheEntriesOfADeadReceiverWaitForTheNextOne) {
  Connect();
  for (int i = 0; i < 3; ++i) SendDirect();
  TakeDirect();
  Die(receives_.session);
  Restart();
  EXPECT_EQ(Send(sends_).reason(), "RECEIVER_DIED");
  auto next = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(next), ElementsAre(2, 3));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, AForwardOfAnEntryKeepsItsRange) {
  Connect();
  SendDirect();
  TakeDirect();
  PublishCall forward;
  forward.ns = "default";
  forward.name = "kept";
  forward.arena = ArenaId{sends_.arena.arena};
  forward.arena_generation = sends_.arena.generation;
  forward.size = 256;
  forward.source = ShareSource{.direct_channel = control().number, .bit = 1};
  ASSERT_TRUE(broker().Publish(receives_.session, forward).ok());
  EXPECT_EQ(control().kept[0], 2u);
  Restart();
  EXPECT_EQ(control().kept[0], 2u);
  const ShareKey key{.name = "kept"};
  const auto acquired = broker().Acquire(receives_.session, "default", {&key, 1}, false);
  ASSERT_TRUE(acquired.ok());
  EXPECT_TRUE(broker().Withdraw(receives_.session, "default", {&key, 1}).ok());
  EXPECT_EQ(control().kept[0], 2u) << "it is leased";
  Restart();
  EXPECT_EQ(control().kept[0], 2u);
  const uint64_t lease = Number(acquired->shares.at(0).lease);
  EXPECT_EQ(*broker().Release(receives_.session, {&lease, 1}, {}, {}), 1u);
  EXPECT_EQ(control().kept[0], 0u);
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace arraybridge::daemon
