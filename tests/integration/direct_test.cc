// SPDX-License-Identifier: Apache-2.0
// Channels whose one sender and one receiver need no call, with a real daemon: the same stream as by calls.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/process/coarse_clock.h"
#include "tests/integration/direct_fixture.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(DirectPairTest, SharesGoInOrderWithoutACall) {
  MeetHere();
  const auto before = sender_.GetStats();
  const uint64_t shares = direct_shares();
  for (int i = 0; i < 5000; ++i, ++next_) {
    ASSERT_TRUE(Send(sender_, *sends_, next_).ok());
    ASSERT_EQ(Receive(*receives_), next_);
  }
  EXPECT_EQ(direct_shares(), shares + 5000);
  EXPECT_EQ(sender_.GetStats()->publishes_total, before->publishes_total) << "the broker has heard of none";
  EXPECT_LE(sender_.client_stats().arena_bytes, 2u << 20) << "ranges come back: 5000 of 4 KiB are 20 MiB";
  EXPECT_EQ(sender_.client_stats().live_leases + receiver_.client_stats().live_leases, 0u);
}

TEST_F(DirectPairTest, WhatIsReceivedSaysWhatWasSent) {
  MeetHere();
  ASSERT_TRUE(Send(sender_, *sends_, 7, "said").ok());
  const auto received = receives_->Receive({});
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(received->share->name, "c");
  EXPECT_EQ(received->share->metadata, "said");
  EXPECT_EQ(received->share->size, kWords * sizeof(uint64_t));
  EXPECT_EQ(received->share->arrays.size(), 1u);
  EXPECT_EQ(received->views[0].dtype, "uint64");
  EXPECT_TRUE(received->views[0].read_only);
  ASSERT_TRUE(Send(sender_, *sends_, 8).ok());
  auto own = receives_->Receive({.mode = MapMode::kPrivate});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->share->metadata, "");
  EXPECT_FALSE(own->views[0].read_only);
  static_cast<uint64_t*>(own->views[0].data)[0] = 1;  // its own
}

// An array of this process, full of one number.
struct Numbered {
  explicit Numbered(uint64_t number, size_t words = 512) : bytes(words, number) {
    view.data = bytes.data();
    view.type = {1, 64, 1};
    view.shape = {static_cast<int64_t>(words)};
    view.strides = {1};
  }
  std::vector<uint64_t> bytes;
  View view;
};

TEST_F(DirectPairTest, ArraysAreCopiedAndSentInOneStep) {
  const Numbered first(0);
  EXPECT_FALSE(sends_->TrySend({&first.view, 1}, {})) << "there is no direct channel yet";
  MeetHere();
  const auto before = sender_.GetStats();
  for (int i = 0; i < 5000; ++i, ++next_) {
    Numbered array(next_);
    ASSERT_TRUE(sends_->TrySend({&array.view, 1}, {}));
    array.bytes.assign(512, 999);
    ASSERT_EQ(Receive(*receives_), next_) << "a copy was sent";
    ASSERT_TRUE(Send(sender_, *sends_, ++next_).ok());
    ASSERT_EQ(Receive(*receives_), next_) << "the other way goes on";
  }
  EXPECT_EQ(sender_.GetStats()->publishes_total, before->publishes_total) << "the broker has heard of none";
  EXPECT_LE(sender_.client_stats().arena_bytes, 2u << 20) << "ranges come back: 10000 of 4 KiB are 40 MiB";
}

TEST_F(DirectPairTest, WhatIsSentInOneStepSaysWhatItIs) {
  MeetHere();
  const Numbered one(1, 3), two(2, 40);
  View empty = one.view;
  empty.shape = {0};
  empty.data = nullptr;
  View matrix = two.view;
  matrix.shape = {4, 5};
  matrix.strides = {10, 2};  // every second word
  const std::vector<View> arrays{one.view, empty, matrix};
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(sends_->TrySend(arrays, {.structure = "tree", .metadata = "said"}));
    const auto received = receives_->Receive({});
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received->share->structure, "tree");
    EXPECT_EQ(received->share->metadata, "said");
    ASSERT_EQ(received->views.size(), 3u);
    EXPECT_EQ(received->views[0].dtype, "uint64");
    EXPECT_EQ(received->views[0].shape, one.view.shape);
    EXPECT_EQ(NumberOf(*received), 1u);
    EXPECT_EQ(received->views[1].elements(), 0u);
    EXPECT_EQ(received->views[2].shape, matrix.shape);
    EXPECT_EQ(static_cast<const uint64_t*>(received->views[2].data)[19], 2u);
    ASSERT_TRUE(sends_->TrySend({&one.view, 1}, {})) << "without the structure";
    const auto plain = receives_->Receive({});
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->share->structure + plain->share->metadata, "");
  }
}

TEST_F(DirectPairTest, WhatTakesACallOrAWaitIsNotSentInOneStep) {
  MeetHere();
  const Numbered array(7);
  const std::span<const View> arrays{&array.view, 1};
  EXPECT_FALSE(sends_->TrySend({}, {}));
  EXPECT_FALSE(sends_->TrySend(arrays, {.metadata = std::string(1000, 'm')})) << "no entry can say it";
  EXPECT_FALSE(sends_->TrySend(arrays, {.metadata = std::string(100000, 'm')})) << "the broker would refuse it";
  const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {512}, .strides = {}};
  const auto placement = sender_.Empty({&spec, 1});
  ASSERT_TRUE(placement.ok());
  EXPECT_FALSE(sends_->TrySend(placement->views(), {})) << "it lies in broker memory, and goes without a copy";
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(sends_->TrySend(arrays, {.timeout = seconds(30)}));
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(sends_->TrySend(arrays, {.timeout = seconds(30)})) << "it is full";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(10));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Receive(*receives_), 7u);
  ASSERT_TRUE(sends_->TrySend(arrays, {}));
  const auto received = receives_->Receive({});
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(receives_->TrySend(received->views, {})) << "it is the other end";
  ASSERT_TRUE(sends_->Close().ok());
  EXPECT_FALSE(sends_->TrySend(arrays, {}));
  EXPECT_EQ(sends_->Send(*placement, {}).reason(), "CHANNEL_NOT_OPEN");
}

TEST_F(DirectPairTest, ABroadcastIsNeitherSentNorReceivedInOneStep) {
  for (const auto mode : {ChannelMode::kBroadcast, ChannelMode::kLatest}) {
    const std::string name = mode == ChannelMode::kLatest ? "latest" : "broadcast";
    auto receives = receiver_.OpenChannel(name, Channel::Role::kReceiver, {.mode = mode});
    auto sends = sender_.OpenChannel(name, Channel::Role::kSender, {.mode = mode});
    ASSERT_TRUE(receives.ok() && sends.ok());
    const Numbered array(3);
    for (int i = 0; i < 50; ++i) {
      EXPECT_FALSE(sends->TrySend({&array.view, 1}, {}));
      ASSERT_TRUE(Send(sender_, *sends, 4).ok());
      EXPECT_FALSE(receives->TryReceive(MapMode::kShared).has_value());
      EXPECT_EQ(Receive(*receives), 4u);
    }
  }
}

TEST_F(DirectPairTest, AShareThatIsThereIsReceivedWithoutWaiting) {
  EXPECT_FALSE(receives_->TryReceive(MapMode::kShared).has_value()) << "there is no direct channel yet";
  MeetHere();
  EXPECT_FALSE(receives_->TryReceive(MapMode::kShared).has_value()) << "it is empty";
  ASSERT_TRUE(Send(sender_, *sends_, 5, "said").ok());
  ASSERT_TRUE(Send(sender_, *sends_, 6).ok());
  const auto first = receives_->TryReceive(MapMode::kPrivate);
  ASSERT_TRUE(first && first->ok());
  EXPECT_EQ(NumberOf(**first), 5u);
  EXPECT_EQ((*first)->share->metadata, "said");
  EXPECT_FALSE((*first)->views[0].read_only) << "its own";
  EXPECT_EQ(Receive(*receives_), 6u);
  ASSERT_TRUE(Send(sender_, *sends_, 8, std::string(1000, 'm')).ok()) << "by a call, which ends the direct channel";
  ASSERT_TRUE(Send(sender_, *sends_, 9).ok());
  EXPECT_FALSE(receives_->TryReceive(MapMode::kShared).has_value()) << "the one that comes by a call is first";
  EXPECT_EQ(Receive(*receives_), 8u);
  EXPECT_EQ(Receive(*receives_), 9u);
  ASSERT_TRUE(receives_->Close().ok());
  EXPECT_FALSE(receives_->TryReceive(MapMode::kShared).has_value());
}

// Each differs from the one before in one respect, or in none.
TEST_F(DirectPairTest, EachShareHasItsOwnDescription) {
  MeetHere();
  struct Said {
    std::vector<ArraySpec> arrays;
    std::string structure;
    std::string metadata;
  };
  const ArraySpec array{.type = {1, 32, 1}, .dtype = "uint32", .shape = {64}, .strides = {}};
  ArraySpec other_type = array, other_name = array, other_shape = array, larger = array;
  other_name.dtype = "mine";
  other_type.type = {2, 32, 1}, other_type.dtype = "mine";
  other_shape.shape = {2, 32};
  larger.shape = {65};
  const std::vector<Said> all{{{array}, "", ""},         {{array}, "", ""},  {{other_name}, "", ""},
                              {{other_type}, "", ""},    {{array}, "", ""},  {{other_shape}, "", ""},
                              {{array}, "", ""},         {{larger}, "", ""}, {{larger, array}, "", ""},
                              {{array, larger}, "", ""}, {{array}, "", ""},  {{array}, "[0]", ""},
                              {{array}, "", "[0]"},      {{array}, "", ""}};
  const uint64_t shares = direct_shares();
  for (const Said& said : all) {
    const auto placement = sender_.Empty(said.arrays);
    ASSERT_TRUE(placement.ok()) << placement.status().ToString();
    ASSERT_TRUE(sends_->Send(*placement, {.structure = said.structure, .metadata = said.metadata}).ok());
    const auto received = receives_->Receive({});
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received->share->structure, said.structure);
    EXPECT_EQ(received->share->metadata, said.metadata);
    ASSERT_EQ(received->views.size(), said.arrays.size());
    for (size_t i = 0; i < said.arrays.size(); ++i) {
      EXPECT_EQ(received->views[i].type, said.arrays[i].type);
      EXPECT_EQ(received->views[i].dtype, said.arrays[i].dtype);
      EXPECT_EQ(received->views[i].shape, said.arrays[i].shape);
    }
    EXPECT_NE(received->views.front().data, received->views.size() == 2 ? received->views[1].data : nullptr);
  }
  EXPECT_EQ(direct_shares(), shares + all.size());
}

TEST_F(DirectPairTest, ItHoldsSoManyAndNoMore) {
  MeetHere();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, 100 + i, {}, milliseconds(0)).ok());
  const uint64_t shares = direct_shares();
  const Status full = Send(sender_, *sends_, 104, {}, milliseconds(20));
  EXPECT_EQ(full.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(full.reason(), "CHANNEL_FULL");
  EXPECT_EQ(direct_shares(), shares);
  EXPECT_EQ(sender_.GetStats()->queued_shares, 4u);
  std::thread later([&] { EXPECT_TRUE(Send(sender_, *sends_, 104).ok()); });  // waits until there is room
  for (uint64_t i = 100; i < 105; ++i) EXPECT_EQ(Receive(*receives_), i);
  later.join();
  EXPECT_EQ(direct_shares(), shares + 1);
}

TEST_F(DirectPairTest, AWaitForAShareHasItsDeadlineAndIsWoken) {
  MeetHere();
  const auto empty = receives_->Receive({.timeout = milliseconds(20)});
  EXPECT_EQ(empty.status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(empty.status().reason(), "CHANNEL_EMPTY");
  EXPECT_EQ(receives_->Receive({.timeout = milliseconds(0)}).status().reason(), "CHANNEL_EMPTY");
  for (uint64_t i = 0; i < 20; ++i) {
    std::thread waits([&] { EXPECT_EQ(Receive(*receives_), i); });
    if (i % 2 == 0) std::this_thread::sleep_for(milliseconds(2));  // asleep, mostly
    EXPECT_TRUE(Send(sender_, *sends_, i).ok());
    waits.join();
  }
}

TEST_F(DirectPairTest, WhatNoEntryCanSayKeepsItsPlace) {
  MeetHere();
  const std::string long_metadata(1000, 'm');
  for (uint64_t round = 0; round < 50; ++round) {
    const uint64_t first = 10 * round;
    ASSERT_TRUE(Send(sender_, *sends_, first).ok());
    ASSERT_TRUE(Send(sender_, *sends_, first + 1, long_metadata).ok()) << "by a call: the one before goes first";
    ASSERT_TRUE(Send(sender_, *sends_, first + 2).ok());
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Receive(*receives_), first + i);
    if (round % 10 == 0) {
      ASSERT_TRUE(Send(sender_, *sends_, 5, long_metadata).ok()) << "on an empty direct channel";
      ASSERT_TRUE(Send(sender_, *sends_, 6).ok());
      ASSERT_EQ(Receive(*receives_), 5u);
      ASSERT_EQ(Receive(*receives_), 6u);
    }
  }
}

TEST_F(DirectPairTest, LargeArraysHaveArenasOfTheirOwn) {
  MeetHere();
  constexpr int64_t kLarge = 3 << 20;  // words: 24 MiB
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(Send(sender_, *sends_, i, {}, {}, kLarge).ok());
    ASSERT_EQ(Receive(*receives_), i);
  }
  EXPECT_LE(sender_.client_stats().arena_bytes, 60u << 20) << "carved again";
}

TEST_F(DirectPairTest, WhoDoesNotWaitGetsWhatLiesInAnArenaThatItHasNotMapped) {
  MeetHere();
  constexpr int64_t kLarge = 3 << 20;
  const uint64_t before = direct_shares();
  ASSERT_TRUE(Send(sender_, *sends_, 7, {}, {}, kLarge).ok());
  ASSERT_EQ(direct_shares(), before + 1);
  const auto received = receives_->Receive({.timeout = milliseconds(0)});
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  EXPECT_EQ(NumberOf(*received), 7u);
}

TEST_F(DirectPairTest, TheEndOfTheStreamComesAfterWhatWasSent) {
  MeetHere();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, i).ok());
  ASSERT_TRUE(sends_->Close().ok());
  EXPECT_EQ(Send(sender_, *sends_, 5).reason(), "CHANNEL_NOT_OPEN");
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(Receive(*receives_), i);
  EXPECT_EQ(receives_->Receive({}).status().reason(), "CHANNEL_ENDED");
}

TEST_F(DirectPairTest, WhoWaitsIsToldOfTheEnd) {
  MeetHere();
  std::thread waits([&] { EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_ABANDONED"); });
  std::this_thread::sleep_for(milliseconds(5));  // asleep, mostly
  ASSERT_TRUE(sends_->Abandon().ok());
  waits.join();
}

TEST_F(DirectPairTest, ASenderThatWaitsIsToldThatNobodyReceives) {
  MeetHere();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, i).ok());
  std::thread waits([&] { EXPECT_EQ(Send(sender_, *sends_, 4).reason(), "NO_RECEIVER"); });
  std::this_thread::sleep_for(milliseconds(5));
  ASSERT_TRUE(receives_->Close().ok());
  waits.join();
}

TEST_F(DirectPairTest, AThreadThatClosesWakesTheOneThatWaits) {
  MeetHere();
  std::thread waits([&] { EXPECT_EQ(receives_->Receive({}).status().reason(), "CHANNEL_NOT_OPEN"); });
  std::this_thread::sleep_for(milliseconds(5));
  ASSERT_TRUE(receives_->Close().ok());
  waits.join();
}

TEST_F(DirectPairTest, SeveralThreadsReceiveEachOnce) {
  MeetHere();
  constexpr uint64_t kCount = 4000;
  std::atomic<uint64_t> sum{0};
  std::atomic<uint64_t> count{0};
  std::atomic<bool> ended{false};  // told to a thread: who is not waiting then, is not told
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!ended) {
        const auto received = receives_->Receive({.timeout = milliseconds(50)});
        if (received.ok()) {
          sum += NumberOf(*received);
          ++count;
          continue;
        }
        const std::string& reason = received.status().reason();
        EXPECT_TRUE(reason == "CHANNEL_ENDED" || reason == "CHANNEL_EMPTY") << received.status().ToString();
        if (reason == "CHANNEL_ENDED") ended = true;
      }
    });
  }
  std::vector<std::thread> senders;
  for (uint64_t t = 0; t < 2; ++t) {
    senders.emplace_back([&, t] {
      for (uint64_t i = t; i < kCount; i += 2) EXPECT_TRUE(Send(sender_, *sends_, i).ok());
    });
  }
  for (auto& thread : senders) thread.join();
  ASSERT_TRUE(sends_->Close().ok());
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count.load(), kCount);
  EXPECT_EQ(sum.load(), kCount * (kCount - 1) / 2);
}

TEST_F(DirectPairTest, WhoKeepsMoreThanThereAreSlotsGetsThemByCalls) {
  MeetHere();
  std::vector<Acquired> kept;
  for (uint64_t i = 0; i < 1100; ++i) {
    ASSERT_TRUE(Send(sender_, *sends_, i).ok());
    auto received = receives_->Receive({});
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    kept.push_back(*std::move(received));
  }
  for (uint64_t i = 0; i < kept.size(); ++i) ASSERT_EQ(NumberOf(kept[i]), i);
}

TEST_F(DirectPairTest, ArraysOutliveTheirChannel) {
  MeetHere();
  std::vector<Acquired> kept;
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(Send(sender_, *sends_, i).ok());
    kept.push_back(*receives_->Receive({}));
  }
  ASSERT_TRUE(Send(sender_, *sends_, 3).ok());
  ASSERT_TRUE(sends_->Close().ok());
  ASSERT_TRUE(receives_->Close().ok());
  for (int round = 0; round < 100; ++round) {
    const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
    const auto placement = sender_.Empty({&spec, 1});
    ASSERT_TRUE(placement.ok());
    std::fill_n(static_cast<uint64_t*>(placement->views()[0].data), kWords, 77);
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(NumberOf(kept[i]), i);
  }
}

TEST_F(DirectPairTest, AChildHasEndsOfItsOwnOrNone) {
  MeetHere();
  ASSERT_TRUE(Send(sender_, *sends_, 41).ok());
  auto inherited = receives_->Receive({});
  ASSERT_TRUE(inherited.ok());
  ASSERT_TRUE(Send(sender_, *sends_, 42).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    if (NumberOf(*inherited) != 41) ::_exit(1);
    if (receives_->Receive({.timeout = milliseconds(0)}).status().reason() != "CHANNEL_LOST") ::_exit(2);
    const Numbered array(1);
    if (sends_->TrySend({&array.view, 1}, {}) || receives_->TryReceive(MapMode::kShared)) ::_exit(4);
    inherited->views.clear();
    auto own = receiver_.OpenChannel("of the child", Channel::Role::kReceiver);
    ::_exit(own.ok() ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(Receive(*receives_), 42u);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(Send(sender_, *sends_, i).ok());
    ASSERT_EQ(Receive(*receives_), i);
    ASSERT_EQ(NumberOf(*inherited), 41u) << "the child has let go of nothing";
  }
}

TEST_F(DirectPairTest, ABrokerThatGoesIsNoticedByBoth) {
  MeetHere();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, i).ok());
  std::thread full([&] { EXPECT_EQ(Send(sender_, *sends_, 4).code(), Code::kUnavailable); });
  std::this_thread::sleep_for(milliseconds(5));
  daemon_->Kill();
  full.join();
  for (const auto last = CoarseNow(); CoarseNow() == last;) std::this_thread::yield();  // it is noticed at a tick
  EXPECT_EQ(receives_->Receive({}).status().reason(), "CHANNEL_LOST");
}

class NoDirectChannelTest : public DirectPairTest {
 protected:
  NoDirectChannelTest() : DirectPairTest({"--limit", "object_bytes_per_uid=640KiB"}) {}
};

TEST_F(NoDirectChannelTest, SoManyDirectChannelsAndNoMore) {
  MeetHere();
  auto receives = receiver_.OpenChannel("another", Channel::Role::kReceiver);
  auto sends = sender_.OpenChannel("another", Channel::Role::kSender);
  const uint64_t shares = direct_shares();
  for (uint64_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(Send(sender_, *sends, i).ok());
    ASSERT_EQ(Receive(*receives), i);
  }
  EXPECT_EQ(direct_shares(), shares) << "by calls: limits.object_bytes_per_uid";
  ASSERT_TRUE(sends_->Close().ok());
  ASSERT_TRUE(receives_->Close().ok());
  ASSERT_TRUE(sender_.Flush().ok());
  uint64_t next = 1000;
  Meet(sender_, *sends, receiver_, *receives, &next);
}

}  // namespace
}  // namespace arraybridge
