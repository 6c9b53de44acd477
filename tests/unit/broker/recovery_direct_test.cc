// SPDX-License-Identifier: Apache-2.0
// Direct channels whose broker is killed are continued by the next one, and so is what relays have sent on.
#include <gmock/gmock.h>

#include <string>
#include <tuple>

#include "tests/unit/broker/recovery_channel_fixture.h"

namespace arraybridge {
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
  EXPECT_EQ(broker().Release(receives_.session, {&lease, 1}, {}, {})->released, 1u);
  EXPECT_EQ(control().kept[0], 0u);
  ExpectNothingIsLeft();
}

// A relay receives from `sends_` and sends on to `last_`, which has an entry when the relay ends: before the broker is
// killed, or while it is gone. Then the last receiver says that it has no entry any more, or ends.
class RecoveryForwardTest : public RecoveryDirectTest, public testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  RecoveryForwardTest()
      : onward_(OpenEnd(receives_.session, kSender, {.capacity = kSlots}, 0, "onward")),
        last_(OpenEnd(Open(), kReceiver, {}, 0, "onward")) {
    Connect();
    source_ = control().number;
    auto of_sender = broker().ExportDirectChannel(onward_.session, onward_.id);
    EXPECT_TRUE(of_sender.ok() && broker().ExportDirectChannel(last_.session, last_.id).ok());
    const Mapped block(of_sender->files[direct_channel::kControl], 4096, PROT_READ);
    number_ = block.as<direct_channel::ControlBlock>().number;
    EXPECT_TRUE(broker().DirectChannelMapped(onward_.session, onward_.id, number_).ok());
    EXPECT_TRUE(broker().DirectChannelMapped(last_.session, last_.id, number_).ok());
  }
  Status Forward(uint64_t source) { return broker().ForwardDirectly(onward_.session, onward_.id, number_, source); }
  void ForwardOne() {
    ASSERT_TRUE(Forward(source_).ok());
    SendDirect();
    TakeDirect();
  }
  static constexpr uint64_t kAllBits = UINT64_MAX;

  End onward_;
  End last_;
  uint64_t source_ = 0;
  uint64_t number_ = 0;  // of the direct channel to the last receiver
};

TEST_P(RecoveryForwardTest, WhatTheRelayHadIsKeptUntilTheLastReceiverHasNothingAnyMore) {
  const auto [in_outage, forgets] = GetParam();
  ForwardOne();
  EXPECT_EQ(control().kept[0], 0u);
  Restart();
  EXPECT_EQ(control().kept[0], 0u) << "the relay keeps it";
  if (in_outage) Die(receives_.session);
  if (in_outage) Restart();
  if (!in_outage) EndSession(receives_.session);
  EXPECT_NE(control().gone, 0u);
  for (const uint64_t word : control().kept) EXPECT_EQ(word, kAllBits);
  Restart();
  for (const uint64_t word : control().kept) EXPECT_EQ(word, kAllBits) << "the next broker knows it, too";
  if (forgets) broker().ForgetReceived(last_.session, {&number_, 1});
  if (!forgets) EndSession(last_.session);
  for (const uint64_t word : control().kept) EXPECT_EQ(word, 0u);
  EXPECT_FALSE(store_->Has("d" + std::to_string(number_)));
  broker().ForgetDirectChannels(sends_.session, {&source_, 1});
  EXPECT_FALSE(store_->Has("d" + std::to_string(source_)));
  ExpectNothingIsLeft();
}
// The last receiver publishes what it has, and has nothing else of it any more.
TEST_P(RecoveryForwardTest, WhatTheRelayHadIsKeptForAShare) {
  const auto [in_outage, ends] = GetParam();
  ForwardOne();
  PublishCall kept;
  kept.ns = "default";
  kept.name = "kept";
  kept.arena = ArenaId{sends_.arena.arena};
  kept.arena_generation = sends_.arena.generation;
  kept.size = 256;
  kept.source = ShareSource{.direct_channel = number_, .bit = 1};
  ASSERT_TRUE(broker().Publish(last_.session, kept).ok());
  if (in_outage) Die(receives_.session);
  if (in_outage) Restart();
  if (!in_outage) EndSession(receives_.session);
  broker().ForgetReceived(last_.session, {&number_, 1});
  if (ends) EndSession(last_.session);
  broker().Sweep(Clock::now());
  EXPECT_EQ(control().kept[0], kAllBits);
  Restart();
  broker().Sweep(Clock::now());
  EXPECT_EQ(control().kept[0], kAllBits) << "the share uses it";
  const ShareKey key{.name = "kept"};
  EXPECT_TRUE(broker().Withdraw(sends_.session, "default", {&key, 1}).ok());
  for (int i = 0; i < 3; ++i) broker().Sweep(Clock::now() + config_.orphan_grace.get());
  EXPECT_EQ(control().kept[0], 0u);
  EXPECT_FALSE(store_->Has("d" + std::to_string(number_)));
  ExpectNothingIsLeft();
}

// A broker that stops without a next one ends all sessions, whose clients go on reading.
TEST_P(RecoveryForwardTest, NothingThatIsReadIsFreedWhenTheBrokerStops) {
  ForwardOne();
  EndSession(receives_.session);
  EXPECT_EQ(control().kept[0], kAllBits);
  const auto [of_sender_first, sweeps] = GetParam();
  broker().Stop();
  for (const SessionId session :
       of_sender_first ? std::vector{sends_.session, last_.session} : std::vector{last_.session, sends_.session}) {
    EndSession(session);
    if (sweeps) broker().Sweep(Clock::now() + config_.orphan_grace.get());
  }
  EXPECT_EQ(control().kept[0], kAllBits);
  broker_.reset();
  EXPECT_EQ(control().kept[0], kAllBits) << "the last receiver may read it";
}

TEST_P(RecoveryForwardTest, OnlyItsReceiverForwardsWhatStands) {
  const auto as = [&](const End& end, uint64_t number, uint64_t source) {
    return broker().ForwardDirectly(end.session, end.id, number, source).reason();
  };
  EXPECT_EQ(as(onward_, number_, number_), "NO_DIRECT_CHANNEL") << "it sends there";
  EXPECT_EQ(as(onward_, number_ + 1, source_), "NO_DIRECT_CHANNEL");
  EXPECT_EQ(as(onward_, number_, source_ + 100), "NO_DIRECT_CHANNEL");
  EXPECT_EQ(as(sends_, source_, number_), "NO_DIRECT_CHANNEL");
  EXPECT_EQ(as(last_, number_, source_), "NO_DIRECT_CHANNEL") << "it receives there";
  ASSERT_TRUE(Forward(source_).ok());
  ASSERT_TRUE(Forward(source_).ok()) << "once more";
  Revoke(broker().DirectChannelOf(sends_.session, sends_.id));
  EXPECT_EQ(Forward(source_).reason(), "NO_DIRECT_CHANNEL") << "it has ended";
  EXPECT_EQ(broker().DirectChannelsWithEntriesOf(sends_.session).size(), 1u);
  EXPECT_TRUE(broker().DirectChannelsWithEntriesOf(onward_.session).empty());
  broker().ForgetReceived(last_.session, {&number_, 1});
  EXPECT_NE(broker().DirectChannelOf(onward_.session, onward_.id), nullptr) << "its receiver takes no entry more";
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(Ends, RecoveryForwardTest, testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace arraybridge
