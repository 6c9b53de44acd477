// SPDX-License-Identifier: Apache-2.0
// To whom a direct channel is charged, and until when (limits.object_bytes_per_uid).
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/service/direct_fixture.h"

namespace arraybridge::daemon {
namespace {

TEST_F(VerbsDirectTest, SoManyOfAUserAndNoMore) {
  config_.limits.object_bytes_per_uid = 2 * object_bytes::kDirectChannel - 1;
  Build();
  v1::OpenChannelRequest request;
  request.set_name("another");
  request.set_role(kSender);
  const auto sends = door().OpenChannel(sender_, request);
  request.set_role(kReceiver);
  ASSERT_TRUE(door().OpenChannel(receiver_, request).ok());
  const Status refused = RefusedFiles(sender_, sends->message.channel());
  EXPECT_EQ(refused.reason(), "TOO_MANY_DIRECT_CHANNELS");
  CloseBoth();
  EXPECT_EQ(RefusedFiles(sender_, sends->message.channel()).reason(), "TOO_MANY_DIRECT_CHANNELS")
      << "its sender may wait for what was received there";
  v1::ReleaseRequest release;
  release.add_direct_channels(ends_->control().number);
  EXPECT_TRUE(door().Release(sender_, release).ok());
  EXPECT_TRUE(RefusedFiles(sender_, sends->message.channel()).ok());
}

// Two users who share a namespace, and a direct channel from one to the other.
class VerbsDirectOfTwoUsersTest : public VerbsDirectTest {
 protected:
  static constexpr uint32_t kSends = 1000;
  static constexpr uint32_t kReceives = 1001;

  void SetUp() override {
    config_.limits.object_bytes_per_uid = 2 * object_bytes::kDirectChannel - 1;
    for (const uint32_t uid : {kSends, kReceives}) {
      config_.namespaces["team"].access.push_back({AccessEntry::Who::kUser, uid, {}, Right::kWrite});
    }
    sender_ = Open(Door::kLifeline, kSends);
    receiver_ = Open(Door::kLifeline, kReceives);
    sending_ = EndOf(sender_, "between", kSender);
    receiving_ = EndOf(receiver_, "between", kReceiver);
    ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  }
  uint64_t EndOf(const Caller& caller, const std::string& channel, v1::OpenChannelRequest::Role role) {
    v1::OpenChannelRequest request;
    request.set_namespace_("team");
    request.set_name(channel);
    request.set_role(role);
    request.set_capacity(kCapacity);
    const auto opened = door().OpenChannel(caller, request);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened.ok() ? opened->message.channel() : 0;
  }
  // Why a channel between these two gets no direct channel; nothing: it has one from now on.
  std::string RefusalBetween(const Caller& one, const Caller& other) {
    const std::string channel = "channel " + std::to_string(++channels_);
    const uint64_t end = EndOf(one, channel, kSender);
    EndOf(other, channel, kReceiver);
    return RefusedFiles(one, end).reason();
  }

  int channels_ = 0;
};

TEST_F(VerbsDirectOfTwoUsersTest, ThatStandsIsChargedToBoth) {
  const Caller senders = Open(Door::kLifeline, kSends);
  const Caller receivers = Open(Door::kLifeline, kReceives);
  EXPECT_EQ(RefusalBetween(sender_, senders), "TOO_MANY_DIRECT_CHANNELS");
  EXPECT_EQ(RefusalBetween(receiver_, receivers), "TOO_MANY_DIRECT_CHANNELS")
      << "though the other one asked for it first";
  EXPECT_EQ(RefusalBetween(receivers, senders), "TOO_MANY_DIRECT_CHANNELS");
}

TEST_F(VerbsDirectOfTwoUsersTest, ThatHasEndedIsItsSendersWhoMayWaitForWhatWasReceived) {
  CloseBoth();
  EXPECT_EQ(RefusalBetween(receiver_, receiver_), "") << "who cannot end it does not pay for it";
  EXPECT_EQ(RefusalBetween(sender_, sender_), "TOO_MANY_DIRECT_CHANNELS");
  v1::ReleaseRequest release;
  release.add_direct_channels(ends_->control().number);
  EXPECT_TRUE(door().Release(sender_, release).ok());
  EXPECT_EQ(RefusalBetween(sender_, sender_), "");
}

TEST_F(VerbsDirectOfTwoUsersTest, WhoseSessionEndsLeavesNothingToPayFor) {
  verbs().sessions.EndSession(sender_.session);
  const Caller senders = Open(Door::kLifeline, kSends);
  EXPECT_EQ(RefusalBetween(senders, senders), "");
  EXPECT_EQ(RefusalBetween(receiver_, receiver_), "");
}

TEST_F(VerbsDirectOfTwoUsersTest, ThatNobodyHasUsedIsNobodysOnceItHasEnded) {
  verbs().sessions.EndSession(sender_.session);
  verbs().sessions.EndSession(receiver_.session);
  const Caller sends = Open(Door::kLifeline, kSends);
  const Caller receives = Open(Door::kLifeline, kReceives);
  EXPECT_EQ(RefusalBetween(sends, receives), "") << "asked for, mapped by nobody";
  const uint64_t third = EndOf(sends, "channel 1", kSender);
  EXPECT_NE(third, 0u) << "which ends it";
  EXPECT_EQ(RefusalBetween(sends, sends), "");
  EXPECT_EQ(RefusalBetween(receives, receives), "");
}

// An end has several, one after the other, and what was received on an earlier one may be read longer.
TEST_F(VerbsDirectTest, TheOneThatIsNamedIsForgotten) {
  config_.limits.object_bytes_per_uid = 4 * object_bytes::kDirectChannel - 1;
  Build();
  std::vector<std::unique_ptr<DirectEnds>> direct_channels;
  for (int round = 0; round < 2; ++round) {
    Leave();
    direct_channels.push_back(
        std::make_unique<DirectEnds>(verbs(), sender_, sending_, receiver_, receiving_, kCapacity));
  }
  v1::OpenChannelRequest request;
  request.set_name("another");
  request.set_role(kSender);
  const uint64_t another = door().OpenChannel(sender_, request)->message.channel();
  request.set_role(kReceiver);
  ASSERT_TRUE(door().OpenChannel(receiver_, request).ok());
  EXPECT_EQ(RefusedFiles(sender_, another).reason(), "TOO_MANY_DIRECT_CHANNELS")
      << "two that have ended, and one that stands";
  const auto forget = [&](const Caller& caller, const DirectEnds& direct) {
    v1::ReleaseRequest release;
    release.add_direct_channels(direct.control().number);
    EXPECT_TRUE(door().Release(caller, release).ok());
  };
  const DirectEnds& first = *ends_;
  const DirectEnds& second = *direct_channels[0];
  const DirectEnds& standing = *direct_channels[1];
  forget(sender_, standing);
  forget(receiver_, second);
  EXPECT_EQ(RefusedFiles(sender_, another).reason(), "TOO_MANY_DIRECT_CHANNELS")
      << "one that stands, one that is another's";
  forget(sender_, second);
  EXPECT_TRUE(RefusedFiles(sender_, another).ok());
  forget(sender_, second);
  verbs().sessions.EndSession(receiver_.session);
  EXPECT_EQ(standing.control().gone, 1u);
  EXPECT_EQ(first.control().gone, 1u) << "nobody said that it may be forgotten";
  EXPECT_EQ(second.control().gone, 0u);
}

TEST_F(VerbsDirectTest, AStandingDirectChannelIsNotForgotten) {
  config_.limits.object_bytes_per_uid = 2 * object_bytes::kDirectChannel - 1;
  Build();
  v1::ReleaseRequest release;
  release.add_direct_channels(ends_->control().number);
  EXPECT_TRUE(door().Release(sender_, release).ok());
  ends_->Send(arena_, 3);
  verbs().sessions.EndSession(sender_.session);
  EXPECT_EQ(ends_->control().revoked, direct_channel::kRevoked);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 3u);
}

}  // namespace
}  // namespace arraybridge::daemon
