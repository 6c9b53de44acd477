// SPDX-License-Identifier: Apache-2.0
// How a direct channel is made and how it ends: what its sender sent comes once, in order, by whichever way.
#include <thread>

#include "tests/unit/service/direct_fixture.h"

namespace arraybridge::daemon {
namespace {

TEST_F(VerbsDirectTest, IsOpenOnceBothHaveMappedIt) {
  Build();
  EXPECT_EQ(ends_->control().opened, 1u);
  EXPECT_EQ(ends_->control().capacity, kCapacity);
  EXPECT_EQ(ends_->control().calls, 0u);
  EXPECT_EQ(ends_->control().revoked, direct_channel::kStands);
  EXPECT_FALSE(RefusedFiles(sender_, sending_).ok()) << "the writable page is given once";
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_, kLong)), "CHANNEL_IS_DIRECT") << "at once";
}

TEST_F(VerbsDirectTest, WhoWaitsByACallIsSentToTheDirectChannel) {
  sender_ = Open();
  receiver_ = Open();
  sending_ = End(sender_, kSender, kCapacity);
  receiving_ = End(receiver_, kReceiver);
  auto waits = Receive(receiver_, receiving_, kLong);
  EXPECT_FALSE(IsAnswered(waits));
  ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  EXPECT_EQ(ReasonOf(std::move(waits)), "CHANNEL_IS_DIRECT");
}

TEST_F(VerbsDirectTest, IsForOneSenderAndOneReceiverOnLifelines) {
  sender_ = Open();
  sending_ = End(sender_, kSender);
  EXPECT_EQ(RefusedFiles(sender_, sending_).reason(), "NO_DIRECT_CHANNEL");
  EXPECT_EQ(RefusedFiles(sender_, sending_ + 7).reason(), "CHANNEL_NOT_OPEN");
  const Caller far = Open(Door::kGrpc);
  const uint64_t fars = End(far, kReceiver);
  EXPECT_EQ(RefusedFiles(sender_, sending_).reason(), "NO_DIRECT_CHANNEL");
  Close(far, fars);
  const Caller another = Open();
  const uint64_t anothers = End(another, kReceiver);
  End(another, kReceiver);
  EXPECT_EQ(RefusedFiles(another, anothers).reason(), "NO_DIRECT_CHANNEL");
  v1::MappedRequest mapped;
  mapped.set_direct_channel_of(anothers);
  EXPECT_EQ(door().Mapped(another, mapped).status().reason(), "NO_DIRECT_CHANNEL");
}

TEST_F(VerbsDirectTest, WhoJoinsEndsItAndWhatStandsThereIsQueued) {
  Build();
  ends_->Send(arena_, 0);
  ends_->Send(arena_, 1);
  ends_->Send(arena_, 2);
  ends_->Take();
  EXPECT_EQ(verbs().lists.Stats().queued_shares(), 2u);
  const Caller third = Open(Door::kGrpc);
  End(third, kReceiver);
  EXPECT_EQ(ends_->control().revoked, direct_channel::kRevoked);
  EXPECT_EQ(ends_->control().counted, 3u);
  EXPECT_EQ(ends_->control().taken, 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
  EXPECT_EQ(RefusedFiles(sender_, sending_).reason(), "NO_DIRECT_CHANNEL");
}

TEST_F(VerbsDirectTest, WhatGoesByACallComesAfterWhatStandsThere) {
  Build();
  EXPECT_TRUE(Send(sender_, sending_, arena_, 9)->Get().ok()) << "nothing stands there: beside it";
  EXPECT_EQ(ends_->control().revoked, direct_channel::kStands);
  EXPECT_EQ(ends_->control().calls, 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 9u);
  ends_->Send(arena_, 0);
  EXPECT_TRUE(Send(sender_, sending_, arena_, 1)->Get().ok());
  EXPECT_EQ(ends_->control().revoked, direct_channel::kRevoked);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 0u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
}

TEST_F(VerbsDirectTest, CountsWhatWasQueuedBeforeIt) {
  sender_ = Open();
  receiver_ = Open();
  arena_ = Arena(sender_, kMiB);
  sending_ = End(sender_, kSender, kCapacity);
  receiving_ = End(receiver_, kReceiver);
  for (uint64_t page = 0; page < 3; ++page) EXPECT_TRUE(Send(sender_, sending_, arena_, page)->Get().ok());
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 0u);
  ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  EXPECT_EQ(ends_->control().calls, 3u) << "one received, two to come";
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_IS_DIRECT");
}

TEST_F(VerbsDirectTest, CloseAndDeathComeAfterWhatStandsThere) {
  Build();
  ends_->Send(arena_, 4);
  Close(sender_, sending_);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 4u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_ENDED");
}

TEST_F(VerbsDirectTest, WhoReceivedAndHasGoneReadsNothing) {
  Build();
  ends_->Send(arena_, 0);
  ends_->Take();
  EXPECT_EQ(ends_->control().gone, 0u);
  ends_->Send(arena_, 1);
  verbs().sessions.EndSession(receiver_.session);
  EXPECT_EQ(ends_->control().gone, 1u);
  EXPECT_EQ(ends_->control().taken, 1u);
  EXPECT_EQ(Send(sender_, sending_, arena_, 2)->Get().status().reason(), "RECEIVER_DIED");
  v1::ReleaseRequest none;
  const auto told = door().Release(sender_, none);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->message.returned_size(), 0) << "the broker keeps what the receiver had not taken";
  const Caller next = Open();
  EXPECT_EQ(PageOf(Receive(next, End(next, kReceiver))), 1u) << "for the next receiver";
}

TEST_F(VerbsDirectTest, NothingIsLostForALimitThatNobodyAskedFor) {
  config_.limits.shares_per_namespace = 1;
  Build();
  for (uint64_t page = 0; page < 3; ++page) ends_->Send(arena_, page);
  const uint64_t most = config_.limits.object_bytes_per_uid;
  config_.limits.object_bytes_per_uid = 1;
  EXPECT_EQ(Send(sender_, sending_, arena_, 3)->Get().status().reason(), "TOO_MANY_SHARES");
  config_.limits.object_bytes_per_uid = most;
  EXPECT_EQ(PageOf(Leave()), 0u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
  EXPECT_EQ(Send(sender_, sending_, arena_, 3)->Get().status().reason(), "TOO_MANY_SHARES");
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2u);
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_ENDED");
}

TEST_F(VerbsDirectTest, TheReceiverIsGivenTheSendersArenasAndNoOthers) {
  Build();
  v1::ExportRequest request;
  request.set_arena(arena_.arena());
  request.set_arena_generation(arena_.generation());
  EXPECT_EQ(door().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND");
  request.set_direct_channel_of(receiving_);
  const auto exported = door().Export(receiver_, request);
  ASSERT_TRUE(exported.ok()) << exported.status().ToString();
  EXPECT_TRUE(exported->descriptor.valid());
  EXPECT_EQ(door().Export(Open(), request).status().reason(), "ARENA_NOT_FOUND") << "not its end";
  const Caller other = Open();
  const auto others = Arena(other, kMiB);
  request.set_arena(others.arena());
  request.set_arena_generation(others.generation());
  EXPECT_EQ(door().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND") << "not the sender's";
  const auto own = Arena(receiver_, kMiB);
  request.set_arena(own.arena());
  request.set_arena_generation(own.generation());
  EXPECT_EQ(door().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND") << "though it reads it";
  const auto fresh = StartAllocate(sender_, kMiB)->Get();
  ASSERT_TRUE(fresh.ok());
  request.set_arena(fresh->message.handle().arena());
  request.set_arena_generation(fresh->message.handle().generation());
  EXPECT_EQ(door().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND") << "not sealed yet";
}

TEST_F(VerbsDirectTest, WhoeverEndsItWhatStandsThereIsQueuedOnce) {
  Build();
  const Caller far = Open(Door::kGrpc);
  for (uint64_t round = 0; round < 50; ++round) {
    ends_->Send(arena_, 2 * round);
    ends_->Send(arena_, 2 * round + 1);
    uint64_t joined = 0;
    std::thread joins([&] { joined = End(far, kSender); });
    auto left = Leave();
    joins.join();
    EXPECT_EQ(PageOf(std::move(left)), 2 * round);
    EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2 * round + 1);
    EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
    Close(far, joined);
    ends_.reset();
    ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  }
}

TEST_F(VerbsDirectTest, TheDoorbellRingsWhenItEnds) {
  Build();
  const UniqueFd& doorbell = ends_->consumer_doorbell();
  char byte = 0;
  EXPECT_EQ(::read(doorbell.get(), &byte, 1), -1);
  Store(ends_->taken().progress.asleep, 1, std::memory_order_relaxed);
  EXPECT_TRUE(Send(sender_, sending_, arena_, 0)->Get().ok());
  EXPECT_EQ(::read(doorbell.get(), &byte, 1), 1) << "something comes by a call";
  Close(sender_, sending_);
  EXPECT_EQ(::read(doorbell.get(), &byte, 1), 1);
}

}  // namespace
}  // namespace arraybridge::daemon
