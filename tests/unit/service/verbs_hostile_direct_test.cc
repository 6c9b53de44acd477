// SPDX-License-Identifier: Apache-2.0
// A direct channel whose ends have written there what cannot be: nothing of it is believed.
#include "tests/unit/service/direct_fixture.h"

namespace arraybridge::daemon {
namespace {

TEST_F(VerbsDirectTest, AHeadThatCannotBeIsBelievedInNothing) {
  Build();
  ends_->sent().progress.head = kCapacity + 1;
  EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY");
  EXPECT_EQ(ends_->control().revoked, direct_channel::kRevoked);
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED") << "something may be missing";
}

TEST_F(VerbsDirectTest, ATailThatCannotBeIsBelievedInNothing) {
  Build();
  ends_->Send(arena_, 0);
  ends_->taken().progress.taken = 2;
  EXPECT_EQ(verbs().lists.Stats().queued_shares(), 0u);
  EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY");
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED");
}

TEST_F(VerbsDirectTest, WhatATailThatCannotBeSaysOfTheSendersMemoryIsNotBelieved) {
  for (const uint64_t tail : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
    if (ends_) CloseBoth(), ends_.reset(), verbs().sessions.EndSession(sender_.session);
    Build();
    for (uint64_t page = 0; page < kCapacity; ++page) ends_->Send(arena_, page), ends_->Take();
    ends_->Send(arena_, 4);
    ends_->taken().progress.taken = tail;
    EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY") << tail;
    EXPECT_EQ(ends_->control().counted, 5u);
    EXPECT_EQ(ends_->control().taken, 5u)
        << "nothing of it is queued, so the sender waits for the receiver, and its end";
  }
}

TEST_F(VerbsDirectTest, NothingIsTakenFromBeforeTheFirst) {
  Build();
  ends_->Send(arena_, 0);
  ends_->taken().progress.taken = UINT64_MAX;  // two before the head, if one counts on beyond the last number
  EXPECT_EQ(verbs().lists.Stats().queued_shares(), 0u);
  EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY");
  EXPECT_EQ(ends_->control().taken, 1u);
}

TEST_F(VerbsDirectTest, WhatItsSenderHasSeenTakenIsNotQueuedAgain) {
  Build();
  for (uint64_t page = 0; page < 3; ++page) ends_->Send(arena_, page);
  ends_->Take();
  ends_->Take();
  Store(ends_->sent().seen, 2, std::memory_order_relaxed);
  ends_->taken().progress.taken = 0;
  EXPECT_EQ(PageOf(Leave()), 2u) << "the bytes of those before may be others' by now";
  EXPECT_EQ(ends_->control().taken, 2u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_ENDED") << "nothing is missing";
}

TEST_F(VerbsDirectTest, ASenderThatHasSeenWhatCannotBeIsBelievedInNothing) {
  Build();
  ends_->Send(arena_, 0);
  Store(ends_->sent().seen, 2, std::memory_order_relaxed);
  EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY");
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED");
}

TEST_F(VerbsDirectTest, EntriesThatNobodyCouldSendAreLeftOut) {
  Build();
  const Caller other = Open();
  const auto others = Arena(other, kMiB);
  ends_->Send(others, 0);
  ends_->Send(DirectEnds::Said(arena_, 0), "\xff\xff\xff no share");  // no message
  direct_channel::Header stale = DirectEnds::Said(arena_, 0);
  ++stale.generation;
  ends_->Send(stale);
  ends_->Send(arena_, 5);
  EXPECT_EQ(PageOf(Leave()), 5u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED");
}

TEST_F(VerbsDirectTest, AnEntryLongerThanAnEntryIsNone) {
  Build();
  ends_->Send(arena_, 0);
  ends_->entry(0)[0] = direct_channel::Format::kDescriptionBytesMax + 1;
  ends_->Send(arena_, 1);
  ends_->entry(1)[5] = direct_channel::kReturnBits;
  ends_->Send(arena_, 2);
  EXPECT_EQ(PageOf(Leave()), 2u);
}

}  // namespace
}  // namespace arraybridge::daemon
