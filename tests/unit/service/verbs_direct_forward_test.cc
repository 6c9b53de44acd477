// SPDX-License-Identifier: Apache-2.0
// What came through a direct channel is published once more without a copy: its sender reads in the control block that
// the range is in use.
#include "tests/unit/service/direct_fixture.h"

namespace arraybridge::daemon {
namespace {

class VerbsDirectForwardTest : public VerbsDirectTest {
 protected:
  // The receiver has taken this page of the sender's arena, with this return bit.
  void Hand(uint64_t page, uint64_t bit) {
    direct_channel::Header said = DirectEnds::Said(arena_, page);
    said.bit = bit;
    ends_->Send(said);
    ends_->Take();
  }
  v1::PublishRequest ForwardOf(const std::string& name, uint64_t page, uint64_t bit, uint64_t size = 4096) {
    v1::PublishRequest request = PublishOf(arena_, name, false, page * 4096, size);
    request.mutable_source()->set_direct_channel_number(ends_->control().number);
    request.mutable_source()->set_direct_channel_bit(bit);
    return request;
  }
  Status Forward(const Caller& caller, const v1::PublishRequest& request) {
    return door().Publish(caller, request).status();
  }
  Result<v1::AcquireResponse> Get(const std::string& name) {
    auto answer = StartAcquire(Open(), {name})->Get();
    if (!answer.ok()) return answer.status();
    return std::move(answer->message);
  }
  bool IsKept(uint64_t bit) { return (ends_->control().kept[bit / 64] >> bit % 64 & 1) != 0; }
};

TEST_F(VerbsDirectForwardTest, IsKeptUntilTheLastShareIsGone) {
  Build();
  Hand(5, 70);
  EXPECT_FALSE(IsKept(70));
  ASSERT_TRUE(Forward(receiver_, ForwardOf("whole", 5, 70)).ok());
  EXPECT_TRUE(IsKept(70));
  EXPECT_FALSE(IsKept(6)) << "of other bits nothing is said";
  ASSERT_TRUE(Forward(receiver_, ForwardOf("part", 5, 70, 1024)).ok());
  const auto got = Get("whole");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->shares(0).share().handle().arena(), arena_.arena());
  EXPECT_EQ(got->shares(0).share().handle().offset(), 5 * 4096u);
  EXPECT_EQ(broker_->TakeSnapshot().forwards_total, 2u);
  Withdraw(receiver_, "part");
  EXPECT_TRUE(IsKept(70));
  Withdraw(sender_, "whole");
  EXPECT_TRUE(IsKept(70)) << "it is leased";
}

TEST_F(VerbsDirectForwardTest, PartsThatLieBesideEachOtherKeepItTogether) {
  Build();
  Hand(0, 0);
  ASSERT_TRUE(Forward(receiver_, ForwardOf("first", 0, 0, 256)).ok());
  auto second = ForwardOf("second", 0, 0, 256);
  second.set_offset(256);
  ASSERT_TRUE(Forward(receiver_, second).ok());
  Withdraw(receiver_, "first");
  EXPECT_TRUE(IsKept(0));
  Withdraw(receiver_, "second");
  EXPECT_FALSE(IsKept(0));
  EXPECT_EQ(broker_->TakeSnapshot().withdrawn_shares, 0u);
}

TEST_F(VerbsDirectForwardTest, OutlivesItsReceiver) {
  Build();
  Hand(1, 2);
  ASSERT_TRUE(Forward(receiver_, ForwardOf("kept", 1, 2)).ok());
  verbs().sessions.EndSession(receiver_.session);
  EXPECT_EQ(ends_->control().gone, 1u);
  EXPECT_TRUE(IsKept(2));
  EXPECT_TRUE(Get("kept").ok());
}

// The sender reads the control block as long as it waits for ranges, and is charged for it.
TEST_F(VerbsDirectForwardTest, ItsDirectChannelIsCharged) {
  config_.limits.object_bytes_per_uid = 2 * object_bytes::kDirectChannel - 1;
  Build();
  v1::OpenChannelRequest request;
  request.set_name("another");
  request.set_role(kSender);
  const uint64_t another = door().OpenChannel(sender_, request)->message.channel();
  request.set_role(kReceiver);
  ASSERT_TRUE(door().OpenChannel(Open(), request).ok());
  Hand(1, 2);
  ASSERT_TRUE(Forward(receiver_, ForwardOf("kept", 1, 2)).ok());
  verbs().sessions.EndSession(receiver_.session);
  EXPECT_EQ(RefusedFiles(sender_, another).reason(), "TOO_MANY_DIRECT_CHANNELS");
  Withdraw(sender_, "kept");
  EXPECT_FALSE(IsKept(2)) << "the sender learns it after the receiver's end, too";
  EXPECT_EQ(RefusedFiles(sender_, another).reason(), "TOO_MANY_DIRECT_CHANNELS");
  v1::ReleaseRequest release;
  release.add_direct_channels(ends_->control().number);
  EXPECT_TRUE(door().Release(sender_, release).ok());
  EXPECT_TRUE(RefusedFiles(sender_, another).ok());
}

TEST_F(VerbsDirectForwardTest, KeepsNoPagesThatAreNotCharged) {
  Build();
  Hand(1, 2);
  ASSERT_TRUE(Forward(receiver_, ForwardOf("kept", 1, 2)).ok());
  CloseBoth();
  v1::ReleaseRequest release;
  release.add_direct_channels(ends_->control().number);
  ASSERT_TRUE(door().Release(sender_, release).ok());
  EXPECT_EQ(Forward(receiver_, ForwardOf("late", 1, 2)).reason(), "NOT_FORWARDED");
  Withdraw(sender_, "kept");
  EXPECT_TRUE(IsKept(2)) << "the broker has no page of it any more";
  EXPECT_EQ(broker_->TakeSnapshot().withdrawn_shares, 0u);
}

TEST_F(VerbsDirectForwardTest, OutlivesItsSender) {
  Build();
  Hand(1, 2);
  ASSERT_TRUE(Forward(receiver_, ForwardOf("kept", 1, 2)).ok());
  verbs().sessions.EndSession(sender_.session);
  EXPECT_TRUE(Get("kept").ok());
  EXPECT_EQ(Forward(receiver_, ForwardOf("late", 1, 2)).reason(), "NOT_FORWARDED") << "the sender is gone";
  Withdraw(receiver_, "kept");
}

TEST_F(VerbsDirectForwardTest, AnEntryIsForwardedAfterItsDirectChannelHasEnded) {
  Build();
  Hand(1, 2);
  CloseBoth();
  ASSERT_EQ(ends_->control().revoked, direct_channel::kRevoked);
  ASSERT_TRUE(Forward(receiver_, ForwardOf("kept", 1, 2)).ok());
  EXPECT_TRUE(IsKept(2));
  Withdraw(receiver_, "kept");
  EXPECT_FALSE(IsKept(2));
}

TEST_F(VerbsDirectForwardTest, RefusesWhatWasNotSentToThisSession) {
  Build();
  Hand(1, 2);
  EXPECT_EQ(Forward(sender_, ForwardOf("a", 1, 2)).reason(), "NOT_FORWARDED") << "it is not the receiver";
  EXPECT_EQ(Forward(receiver_, ForwardOf("a", 1, direct_channel::kReturnBits)).reason(), "NOT_FORWARDED");
  auto request = ForwardOf("a", 1, 2);
  request.mutable_source()->set_direct_channel_number(ends_->control().number + 1);
  EXPECT_EQ(Forward(receiver_, request).reason(), "NOT_FORWARDED");
  EXPECT_EQ(Forward(receiver_, ForwardOf("a", kMiB / 4096, 2)).reason(), "OUT_OF_BOUNDS");
  request = ForwardOf("a", 1, 2);
  request.set_offset(UINT64_MAX - 255);
  EXPECT_EQ(Forward(receiver_, request).reason(), "OUT_OF_BOUNDS");
  const v1::Handle own = Arena(receiver_, kMiB);
  request = ForwardOf("a", 1, 2);
  request.set_arena(own.arena());
  request.set_arena_generation(own.generation());
  EXPECT_EQ(Forward(receiver_, request).reason(), "NOT_FORWARDED") << "not the sender's arena";
  EXPECT_FALSE(IsKept(2));
}

}  // namespace
}  // namespace arraybridge::daemon
