// SPDX-License-Identifier: Apache-2.0
// Direct channels one end of which writes into its pages whatever it likes: the other end, and its program, lose
// nothing by it but what that end would have sent or read.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "client/shares/forward.h"
#include "tests/integration/direct_fixture.h"
#include "tests/integration/hostile_end.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;

// An honest receiver whose sender is not.
class HostileSenderTest : public DirectTest {
 protected:
  HostileSenderTest() : broker_(options()), receives_(broker_.OpenChannel("c", Channel::Role::kReceiver)) {}

  // The receiver asks for the direct channel with its first call; then its sender is there.
  void Build() {
    for (int i = 0; i < 1000 && !(hostile_ && hostile_->opened()); ++i) {
      if (!hostile_) {
        hostile_ = std::make_unique<HostileEnd>(directory_, "c", true);
        hostile_->MapDirect();
      }
      EXPECT_EQ(receives_->Receive({.timeout = milliseconds(0)}).status().reason(), "CHANNEL_EMPTY");
    }
    ASSERT_TRUE(hostile_->opened());
  }
  Status Receive() { return receives_->Receive({.timeout = milliseconds(20)}).status(); }

  Broker broker_;
  Result<Channel> receives_;
  std::unique_ptr<HostileEnd> hostile_;
};

TEST_F(HostileSenderTest, AHeadThatCannotBe) {
  Build();
  hostile_->sent().progress.head = 1'000'000;
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_.reset();
  EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED");
}

TEST_F(HostileSenderTest, AnEntryOfNoArena) {
  Build();
  direct_channel::Header nowhere;
  nowhere.arena = 12345;
  hostile_->Put(nowhere, "");
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_.reset();
  EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED");
}

TEST_F(HostileSenderTest, EntriesThatDescribeNothing) {
  Build();
  const Handle arena = hostile_->MakeArena();
  direct_channel::Header said;
  said.arena = arena.arena;
  said.generation = arena.generation;
  said.size = 4096;
  hostile_->Put(said, "\xff\xff\xff");
  EXPECT_EQ(Receive().code(), Code::kInvalidArgument);
  said.offset = arena.arena_size;
  hostile_->Put(said, "");
  EXPECT_EQ(Receive().code(), Code::kInvalidArgument);
  said.offset = 1;
  said.size = UINT64_MAX;
  hostile_->Put(said, "");
  EXPECT_EQ(Receive().code(), Code::kInvalidArgument);
  said.offset = 0;
  said.size = 64;
  const codec::PublishedArray beyond = HostileEnd::Words(kWords);
  hostile_->Put(said, codec::EncodeDescription({&beyond, 1}, {}, {}));
  EXPECT_EQ(Receive().code(), Code::kInvalidArgument) << "an array beyond its bytes";
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  EXPECT_EQ(broker_.client_stats().live_leases, 0u);
}

// Otherwise the hostile end could return what an honest sender's entry keeps.
TEST_F(HostileSenderTest, AnEntryInAnArenaThatIsReadForAnothersSake) {
  Build();
  auto honest = std::move(hostile_);
  const Handle arena = honest->MakeArena();
  const auto words = HostileEnd::Words(kWords);
  const std::string description = codec::EncodeDescription({&words, 1}, {}, {});
  direct_channel::Header said;
  said.arena = arena.arena;
  said.generation = arena.generation;
  said.size = kWords * sizeof(uint64_t);
  honest->Put(said, description);
  const auto received = receives_->Receive({.timeout = milliseconds(20)});
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  auto others = broker_.OpenChannel("d", Channel::Role::kReceiver);
  ASSERT_TRUE(others.ok());
  HostileEnd hostile(directory_, "d", true);
  hostile.MapDirect();
  while (!hostile.opened()) static_cast<void>(others->Receive({.timeout = milliseconds(0)}));
  hostile.Put(said, description);
  EXPECT_EQ(others->Receive({.timeout = milliseconds(20)}).status().reason(), "CHANNEL_EMPTY");
}

// Nor what a named share keeps: the forward is one of that share.
TEST_F(HostileSenderTest, AnEntryWithTheBytesOfANamedShare) {
  Build();
  const Handle arena = hostile_->MakeArena();
  hostile_->Publish(arena, "named", kWords);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(broker_.Acquire({.name = "named"}).ok());
  while (broker_.client_stats().live_leases > 0) std::this_thread::sleep_for(milliseconds(1));
  const auto named = broker_.Acquire({.name = "named"});
  ASSERT_TRUE(named.ok());
  ASSERT_GT(broker_.client_stats().catalogue_acquires, 0u);
  const auto words = HostileEnd::Words(kWords);
  direct_channel::Header said;
  said.arena = arena.arena;
  said.generation = arena.generation;
  said.size = kWords * sizeof(uint64_t);
  hostile_->Put(said, codec::EncodeDescription({&words, 1}, {}, {}));
  const auto received = receives_->Receive({.timeout = milliseconds(20)});
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  const auto forward = broker_.PlacementOf(named->views);
  ASSERT_TRUE(forward && forward->forward());
  EXPECT_NE(forward->forward()->source.share, 0u);
  EXPECT_EQ(forward->forward()->source.direct_channel_number, 0u);
}

TEST_F(HostileSenderTest, ADoorbellThatIsRungWithoutEnd) {
  Build();
  EXPECT_FALSE(hostile_->TakesFiles());
  hostile_->RingWithoutEnd();
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_->Steal();
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_.reset();
  EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED");
}

class HostileReceiverTest : public DirectTest {
 protected:
  HostileReceiverTest() : broker_(options()), sends_(broker_.OpenChannel("c", Channel::Role::kSender, 4)) {}

  // Four shares stand on the direct channel.
  void Build() {
    hostile_ = std::make_unique<HostileEnd>(directory_, "c", false);
    hostile_->MapDirect();
    ASSERT_TRUE(Send(broker_, *sends_, 0).ok());
    while (broker_.GetStats().ok() && !hostile_->opened()) {
    }
    hostile_->taken().calls = 1;  // as if it had received that
    for (; broker_.client_stats().direct_shares < 3; ++next_) ASSERT_TRUE(Send(broker_, *sends_, next_).ok());
  }

  Broker broker_;
  Result<Channel> sends_;
  std::unique_ptr<HostileEnd> hostile_;
  uint64_t next_ = 1;
};

TEST_F(HostileReceiverTest, ATailThatCannotBe) {
  Build();
  hostile_->taken().progress.taken = 1'000'000;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(broker_, *sends_, next_++, {}, milliseconds(100)).ok()) << "by calls";
  EXPECT_EQ(broker_.client_stats().direct_shares, 4u) << "the fourth fits into the room that was told before";
}

TEST_F(HostileReceiverTest, WhatIsNotTakenIsNotDone) {
  Build();
  hostile_->taken().returned.fill(UINT64_MAX);
  const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
  for (int i = 0; i < 50; ++i) {
    const auto placement = broker_.Empty({&spec, 1});
    ASSERT_TRUE(placement.ok());
    std::fill_n(static_cast<uint64_t*>(placement->views()[0].data), kWords, 77);
  }
  Broker honest(options());
  auto receives = honest.OpenChannel("c", Channel::Role::kReceiver);
  for (uint64_t i = 0; i < next_; ++i) EXPECT_EQ(DirectTest::Receive(*receives), i);
}

TEST_F(HostileReceiverTest, ADoorbellThatIsRungWithoutEnd) {
  Build();
  hostile_->RingWithoutEnd();
  const Status sent = Send(broker_, *sends_, next_, {}, milliseconds(20));
  EXPECT_TRUE(sent.ok() || sent.reason() == "CHANNEL_FULL") << sent.ToString();
  hostile_.reset();
  Status last;
  while (last.ok() || last.reason() == "CHANNEL_FULL") last = Send(broker_, *sends_, next_, {}, milliseconds(20));
  EXPECT_EQ(last.reason(), "RECEIVER_DIED");
}

}  // namespace
}  // namespace arraybridge
