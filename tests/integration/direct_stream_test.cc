// SPDX-License-Identifier: Apache-2.0
// A direct channel while its ends, and others, come, go and die at full speed: no number is lost, none comes twice.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/integration/direct_fixture.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(DirectTest, AStreamBetweenProcessesIsComplete) {
  Process receiver(Program({"receive", "c"}));
  Process sender(Program({"send", "c", "20000", "16"}));
  std::string end;
  EXPECT_EQ(Numbers(receiver, &end), UpTo(20000));
  EXPECT_EQ(end, "CHANNEL_ENDED");
  EXPECT_EQ(sender.Wait(), 0);
}

TEST_F(DirectTest, WhatAKilledSenderSentArrives) {
  Broker receiver(options());
  auto receives = receiver.OpenChannel("c", Channel::Role::kReceiver);
  Process sender(Program({"send", "c", "300", "64", "kill"}));
  uint64_t next = 0;
  // The rest stands in the channel when the sender is killed.
  for (; next < 240; ++next) ASSERT_EQ(Receive(*receives), next);
  ASSERT_TRUE(sender.Line().starts_with("ready"));
  ASSERT_GT(receiver.client_stats().direct_shares, 0u);
  sender.Kill();
  for (; next < 300; ++next) ASSERT_EQ(Receive(*receives), next);
  EXPECT_EQ(receives->Receive({}).status().reason(), "SENDER_DIED");
}

TEST_F(DirectTest, ArraysOutliveTheirKilledSender) {
  Process sender(Program({"send", "c", "100", "16", "kill"}));
  Process holder(Program({"hold", "c", "100"}));
  ASSERT_TRUE(holder.Line().starts_with("ready"));
  sender.Line();
  sender.Kill();
  Broker other(options());
  for (int i = 0; i < 200; ++i) {
    const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {1 << 15}, .strides = {}};
    ASSERT_TRUE(other.Empty({&spec, 1}).ok());
  }
  EXPECT_EQ(holder.Wait(), 0) << "what it holds is what was sent";
}

TEST_F(DirectTest, WhatAKilledReceiverHadIsCarvedAgain) {
  Broker broker(options());
  auto sends = broker.OpenChannel("c", Channel::Role::kSender, 16);
  Process holder(Program({"hold", "c", "400"}));
  for (uint64_t i = 0; i < 400; ++i) ASSERT_TRUE(Send(broker, *sends, i).ok());
  EXPECT_NE(holder.Line(), "ready 0");
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(Send(broker, *sends, i).ok());
  ASSERT_GT(broker.client_stats().direct_shares, 0u);
  holder.Kill();
  std::string reason;
  while (reason != "RECEIVER_DIED") {
    const Status sent = Send(broker, *sends, 1, {}, milliseconds(100));
    reason = sent.reason();
    ASSERT_TRUE(sent.ok() || reason == "RECEIVER_DIED" || reason == "CHANNEL_FULL") << sent.ToString();
  }
  ASSERT_TRUE(broker.Flush().ok());
  const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
  std::vector<Placement> all;
  for (int i = 0; i < 450; ++i) all.push_back(*broker.Empty({&spec, 1}));
  EXPECT_LE(broker.client_stats().arena_bytes, 2u << 20) << "450 of 4 KiB fit where 410 were";
}

// The second one comes in the middle: from then on both get their part, each number once, in order.
TEST_F(DirectTest, ASecondReceiverJoinsUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    constexpr uint64_t kCount = 6000;
    Broker first(options());
    const std::string name = "c" + std::to_string(round);
    auto receives = first.OpenChannel(name, Channel::Role::kReceiver);
    Process sender(Program({"send", name, std::to_string(kCount), "8"}));
    std::vector<uint64_t> all;
    for (int i = 0; i < 500 * (round + 1); ++i) all.push_back(Receive(*receives));
    EXPECT_GT(first.client_stats().direct_shares, 0u);
    Process second(Program({"receive", name}));
    while (true) {
      const auto received = receives->Receive({});
      if (!received.ok()) {
        EXPECT_EQ(received.status().reason(), "CHANNEL_ENDED");
        break;
      }
      all.push_back(NumberOf(*received));
    }
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    std::string end;
    const auto others = Numbers(second, &end);
    EXPECT_EQ(end, "CHANNEL_ENDED");
    EXPECT_TRUE(std::is_sorted(others.begin(), others.end()));
    all.insert(all.end(), others.begin(), others.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, UpTo(kCount));
  }
}

// Others come and go all the time: the direct channel ends and is made again.
TEST_F(DirectTest, OthersJoinAndLeaveUnderLoad) {
  constexpr uint64_t kCount = 30000;
  Broker receiver(options());
  auto receives = receiver.OpenChannel("c", Channel::Role::kReceiver, 8);
  Process sender(Program({"send", "c", std::to_string(kCount), "8"}));
  ASSERT_EQ(Receive(*receives), 0u);  // the sender is there: without it the others were all senders that have closed
  std::atomic<bool> done{false};
  std::thread others([&] {
    Broker broker(options());
    while (!done.load()) {
      auto joins = broker.OpenChannel("c", Channel::Role::kSender);
      ASSERT_TRUE(joins.ok()) << joins.status().ToString();
      ASSERT_TRUE(joins->Close().ok());
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (uint64_t i = 1; i < kCount; ++i) {
    const uint64_t number = Receive(*receives);
    EXPECT_EQ(number, i);
    if (number != i) break;
  }
  done = true;
  others.join();
  EXPECT_EQ(receives->Receive({}).status().reason(), "CHANNEL_ENDED");
}

// Both ends at full speed while a third comes: the direct channel ends in the middle of their steps.
TEST_F(DirectPairTest, ItEndsInTheMiddleOfEverything) {
  Broker third(options());
  for (int round = 0; round < 200; ++round) {
    const std::string name = "round " + std::to_string(round);
    auto receives = receiver_.OpenChannel(name, Channel::Role::kReceiver, 64);
    auto sends = sender_.OpenChannel(name, Channel::Role::kSender);
    const uint64_t before = receiver_.client_stats().direct_shares;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> count{0};
    std::thread sender([&] {
      uint64_t number = 0;
      for (; !stop.load(); ++number) ASSERT_TRUE(Send(sender_, *sends, number, {}, {}, 8).ok());
      ASSERT_TRUE(sends->Close().ok());
      count = number;
    });
    std::thread joins([&] {
      while (receiver_.client_stats().direct_shares < before + 30) std::this_thread::yield();
      auto end = third.OpenChannel(name, Channel::Role::kSender);
      EXPECT_TRUE(end.ok() && end->Close().ok());
      stop = true;
    });
    uint64_t next = 0;
    Status end;
    while (end.ok()) {
      const auto received = receives->Receive({.timeout = seconds(30)});
      end = received.status();
      if (!received.ok()) break;
      ASSERT_EQ(NumberOf(*received), next);
      ++next;
    }
    joins.join();
    sender.join();
    EXPECT_EQ(end.reason(), "CHANNEL_ENDED");
    EXPECT_EQ(next, count.load());
  }
}

}  // namespace
}  // namespace arraybridge
