// Channels whose one sender and one receiver need no call, with a real daemon and real processes: the same stream as by
// calls, whatever happens to the road meanwhile.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>

#include <arraybridge/broker.h>

#include "tests/integration/hostile_end.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kWords = 512;

class RoadTest : public DaemonTest {
 protected:
  explicit RoadTest(std::vector<std::string> options = {}) : DaemonTest(std::move(options)) {}

  Broker::Options options() const { return {.address = directory_, .timeout = seconds(30)}; }
  std::vector<std::string> Program(std::vector<std::string> words) const {
    std::vector<std::string> all{Built(ROAD_PROGRAM), directory_};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  static Status Send(Broker& broker, Channel& end, uint64_t number, const std::string& metadata = {},
                     std::optional<milliseconds> timeout = {}, int64_t words = kWords) {
    const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {words}, .strides = {}};
    auto placement = broker.Empty({&spec, 1});
    if (!placement.ok()) return placement.status();
    auto* const data = static_cast<uint64_t*>(placement->views()[0].data);
    std::fill_n(data, words, number);
    return end.Send(*placement, {.metadata = metadata, .timeout = timeout});
  }
  // Its number, or 999999 if it is not full of one.
  static uint64_t NumberOf(const Acquired& array) {
    const auto* const words = static_cast<const uint64_t*>(array.views[0].data);
    const auto count = static_cast<size_t>(array.views[0].shape[0]);
    return std::all_of(words, words + count, [&](uint64_t word) { return word == words[0]; }) ? words[0] : 999999;
  }
  static uint64_t Receive(Channel& end) {
    const auto received = end.Receive({.timeout = seconds(30)});
    EXPECT_TRUE(received.ok()) << received.status().ToString();
    return received.ok() ? NumberOf(*received) : 999999;
  }
  // Numbers from `*next` on, until both use the road.
  static void Meet(Broker& sender, Channel& sends, Broker& receiver, Channel& receives, uint64_t* next) {
    const uint64_t before = receiver.client_stats().road_shares;
    for (int i = 0; i < 2000 && receiver.client_stats().road_shares == before; ++i) {
      ASSERT_TRUE(Send(sender, sends, *next).ok());
      ASSERT_EQ(Receive(receives), *next);
      ++*next;
    }
    ASSERT_GT(receiver.client_stats().road_shares, before);
    ASSERT_GT(sender.client_stats().road_shares, 0u);
  }
  // The lines of a receiver's output: numbers, then the reason of the end.
  static std::vector<uint64_t> Numbers(Process& receiver, std::string* end) {
    std::vector<uint64_t> numbers;
    for (std::string line = receiver.Line(); !line.empty(); line = receiver.Line()) {
      if (line.find_first_not_of("0123456789") != std::string::npos) return *end = line, numbers;
      numbers.push_back(std::stoull(line));
    }
    *end = "";
    return numbers;
  }
  static std::vector<uint64_t> UpTo(uint64_t count) {
    std::vector<uint64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

// Two brokers of this process, and an end of each.
class RoadPairTest : public RoadTest {
 protected:
  explicit RoadPairTest(std::vector<std::string> daemon_options = {}, uint64_t capacity = 4)
      : RoadTest(std::move(daemon_options)),
        sender_(options()),
        receiver_(options()),
        receives_(receiver_.OpenChannel("c", Channel::Role::kReceiver, capacity)),
        sends_(sender_.OpenChannel("c", Channel::Role::kSender)) {}

  void MeetHere() { Meet(sender_, *sends_, receiver_, *receives_, &next_); }
  uint64_t on_road() const { return sender_.client_stats().road_shares; }

  Broker sender_;
  Broker receiver_;
  Result<Channel> receives_;
  Result<Channel> sends_;
  uint64_t next_ = 0;
};

TEST_F(RoadPairTest, SharesGoInOrderWithoutACall) {
  MeetHere();
  const auto before = sender_.GetStats();
  const uint64_t road = on_road();
  for (int i = 0; i < 5000; ++i, ++next_) {
    ASSERT_TRUE(Send(sender_, *sends_, next_).ok());
    ASSERT_EQ(Receive(*receives_), next_);
  }
  EXPECT_EQ(on_road(), road + 5000);
  EXPECT_EQ(sender_.GetStats()->publishes_total, before->publishes_total) << "the broker has heard of none";
  EXPECT_LE(sender_.client_stats().arena_bytes, 2u << 20) << "ranges come back: 5000 of 4 KiB are 20 MiB";
  EXPECT_EQ(sender_.client_stats().live_leases + receiver_.client_stats().live_leases, 0u);
}

TEST_F(RoadPairTest, WhatIsReceivedSaysWhatWasSent) {
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

TEST_F(RoadPairTest, ItHoldsSoManyAndNoMore) {
  MeetHere();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, 100 + i, {}, milliseconds(0)).ok());
  const uint64_t road = on_road();
  const Status full = Send(sender_, *sends_, 104, {}, milliseconds(20));
  EXPECT_EQ(full.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(full.reason(), "CHANNEL_FULL");
  EXPECT_EQ(on_road(), road);
  EXPECT_EQ(sender_.GetStats()->queued_shares, 4u);
  std::thread later([&] { EXPECT_TRUE(Send(sender_, *sends_, 104).ok()); });  // waits until there is room
  for (uint64_t i = 100; i < 105; ++i) EXPECT_EQ(Receive(*receives_), i);
  later.join();
  EXPECT_EQ(on_road(), road + 1);
}

TEST_F(RoadPairTest, AWaitForAShareHasItsDeadlineAndIsWoken) {
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

TEST_F(RoadPairTest, WhatNoEntryCanSayKeepsItsPlace) {
  MeetHere();
  const std::string long_metadata(1000, 'm');
  for (uint64_t round = 0; round < 50; ++round) {
    const uint64_t first = 10 * round;
    ASSERT_TRUE(Send(sender_, *sends_, first).ok());
    ASSERT_TRUE(Send(sender_, *sends_, first + 1, long_metadata).ok()) << "by a call: the one before goes first";
    ASSERT_TRUE(Send(sender_, *sends_, first + 2).ok());
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Receive(*receives_), first + i);
    if (round % 10 == 0) {
      ASSERT_TRUE(Send(sender_, *sends_, 5, long_metadata).ok()) << "on an empty road";
      ASSERT_TRUE(Send(sender_, *sends_, 6).ok());
      ASSERT_EQ(Receive(*receives_), 5u);
      ASSERT_EQ(Receive(*receives_), 6u);
    }
  }
}

TEST_F(RoadPairTest, LargeArraysHaveArenasOfTheirOwn) {
  MeetHere();
  constexpr int64_t kLarge = 3 << 20;  // words: 24 MiB
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(Send(sender_, *sends_, i, {}, {}, kLarge).ok());
    ASSERT_EQ(Receive(*receives_), i);
  }
  EXPECT_LE(sender_.client_stats().arena_bytes, 60u << 20) << "carved again";
}

TEST_F(RoadPairTest, TheEndOfTheStreamComesAfterWhatWasSent) {
  MeetHere();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, i).ok());
  ASSERT_TRUE(sends_->Close().ok());
  EXPECT_EQ(Send(sender_, *sends_, 5).reason(), "CHANNEL_NOT_OPEN");
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(Receive(*receives_), i);
  EXPECT_EQ(receives_->Receive({}).status().reason(), "CHANNEL_ENDED");
}

TEST_F(RoadPairTest, WhoWaitsIsToldOfTheEnd) {
  MeetHere();
  std::thread waits([&] { EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED"); });
  std::this_thread::sleep_for(milliseconds(5));  // asleep, mostly
  ASSERT_TRUE(sends_->Abandon().ok());
  waits.join();
}

TEST_F(RoadPairTest, ASenderThatWaitsIsToldThatNobodyReceives) {
  MeetHere();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, i).ok());
  std::thread waits([&] { EXPECT_EQ(Send(sender_, *sends_, 4).reason(), "NO_RECEIVER"); });
  std::this_thread::sleep_for(milliseconds(5));
  ASSERT_TRUE(receives_->Close().ok());
  waits.join();
}

TEST_F(RoadPairTest, AThreadThatClosesWakesTheOneThatWaits) {
  MeetHere();
  std::thread waits([&] { EXPECT_EQ(receives_->Receive({}).status().reason(), "CHANNEL_NOT_OPEN"); });
  std::this_thread::sleep_for(milliseconds(5));
  ASSERT_TRUE(receives_->Close().ok());
  waits.join();
}

TEST_F(RoadPairTest, SeveralThreadsReceiveEachOnce) {
  MeetHere();
  constexpr uint64_t kCount = 4000;
  std::atomic<uint64_t> sum{0};
  std::atomic<uint64_t> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const auto received = receives_->Receive({});
        if (!received.ok()) {
          EXPECT_EQ(received.status().reason(), "CHANNEL_ENDED");
          return;
        }
        sum += NumberOf(*received);
        ++count;
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

TEST_F(RoadPairTest, WhoKeepsMoreThanThereAreSlotsGetsThemByCalls) {
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

TEST_F(RoadPairTest, ArraysOutliveTheirChannel) {
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

TEST_F(RoadPairTest, AChildHasEndsOfItsOwnOrNone) {
  MeetHere();
  ASSERT_TRUE(Send(sender_, *sends_, 41).ok());
  auto inherited = receives_->Receive({});
  ASSERT_TRUE(inherited.ok());
  ASSERT_TRUE(Send(sender_, *sends_, 42).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    if (NumberOf(*inherited) != 41) ::_exit(1);
    if (receives_->Receive({.timeout = milliseconds(0)}).status().reason() != "CHANNEL_LOST") ::_exit(2);
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

TEST_F(RoadPairTest, ABrokerThatGoesIsNoticedByBoth) {
  MeetHere();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Send(sender_, *sends_, i).ok());
  std::thread full([&] { EXPECT_EQ(Send(sender_, *sends_, 4).code(), Code::kUnavailable); });
  std::this_thread::sleep_for(milliseconds(5));
  daemon_->Kill();
  full.join();
  std::this_thread::sleep_for(milliseconds(30));  // two ticks of the clock with which it is noticed
  EXPECT_EQ(receives_->Receive({}).status().reason(), "CHANNEL_LOST");
}

TEST_F(RoadTest, AStreamBetweenProcessesIsComplete) {
  Process receiver(Program({"receive", "c"}));
  Process sender(Program({"send", "c", "20000", "16"}));
  std::string end;
  EXPECT_EQ(Numbers(receiver, &end), UpTo(20000));
  EXPECT_EQ(end, "CHANNEL_ENDED");
  EXPECT_EQ(sender.Wait(), 0);
}

TEST_F(RoadTest, WhatAKilledSenderSentArrives) {
  Broker receiver(options());
  auto receives = receiver.OpenChannel("c", Channel::Role::kReceiver);
  Process sender(Program({"send", "c", "300", "64", "kill"}));
  uint64_t next = 0;
  // The rest stands in the channel when the sender is killed.
  for (; next < 240; ++next) ASSERT_EQ(Receive(*receives), next);
  ASSERT_TRUE(sender.Line().starts_with("ready"));
  ASSERT_GT(receiver.client_stats().road_shares, 0u);
  sender.Kill();
  for (; next < 300; ++next) ASSERT_EQ(Receive(*receives), next);
  EXPECT_EQ(receives->Receive({}).status().reason(), "SENDER_DIED");
}

TEST_F(RoadTest, ArraysOutliveTheirKilledSender) {
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

TEST_F(RoadTest, WhatAKilledReceiverHadIsCarvedAgain) {
  Broker broker(options());
  auto sends = broker.OpenChannel("c", Channel::Role::kSender, 16);
  Process holder(Program({"hold", "c", "400"}));
  for (uint64_t i = 0; i < 400; ++i) ASSERT_TRUE(Send(broker, *sends, i).ok());
  EXPECT_NE(holder.Line(), "ready 0");
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(Send(broker, *sends, i).ok());
  ASSERT_GT(broker.client_stats().road_shares, 0u);
  holder.Kill();
  std::string reason;
  while (reason != "NO_RECEIVER") {
    const Status sent = Send(broker, *sends, 1, {}, milliseconds(100));
    reason = sent.reason();
    ASSERT_TRUE(sent.ok() || reason == "NO_RECEIVER" || reason == "CHANNEL_FULL") << sent.ToString();
  }
  ASSERT_TRUE(broker.Flush().ok());
  const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
  std::vector<Placement> all;
  for (int i = 0; i < 450; ++i) all.push_back(*broker.Empty({&spec, 1}));
  EXPECT_LE(broker.client_stats().arena_bytes, 2u << 20) << "450 of 4 KiB fit where 410 were";
}

// The second one comes in the middle: from then on both get their part, each number once, in order.
TEST_F(RoadTest, ASecondReceiverJoinsUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    constexpr uint64_t kCount = 6000;
    Broker first(options());
    const std::string name = "c" + std::to_string(round);
    auto receives = first.OpenChannel(name, Channel::Role::kReceiver);
    Process sender(Program({"send", name, std::to_string(kCount), "8"}));
    std::vector<uint64_t> all;
    for (int i = 0; i < 500 * (round + 1); ++i) all.push_back(Receive(*receives));
    EXPECT_GT(first.client_stats().road_shares, 0u);
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

// Others come and go all the time: the road ends and is made again.
TEST_F(RoadTest, OthersJoinAndLeaveUnderLoad) {
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

// Both ends at full speed while a third comes: the road ends in the middle of their steps.
TEST_F(RoadPairTest, ItEndsInTheMiddleOfEverything) {
  Broker third(options());
  for (int round = 0; round < 200; ++round) {
    const std::string name = "round " + std::to_string(round);
    auto receives = receiver_.OpenChannel(name, Channel::Role::kReceiver, 64);
    auto sends = sender_.OpenChannel(name, Channel::Role::kSender);
    const uint64_t before = receiver_.client_stats().road_shares;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> count{0};
    std::thread sender([&] {
      uint64_t number = 0;
      for (; !stop.load(); ++number) ASSERT_TRUE(Send(sender_, *sends, number, {}, {}, 8).ok());
      ASSERT_TRUE(sends->Close().ok());
      count = number;
    });
    std::thread joins([&] {
      while (receiver_.client_stats().road_shares < before + 30) std::this_thread::yield();
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

// An honest receiver whose sender is not.
class HostileSenderTest : public RoadTest {
 protected:
  HostileSenderTest() : broker_(options()), receives_(broker_.OpenChannel("c", Channel::Role::kReceiver)) {}

  // The receiver asks for the road with its first call; then its sender is there.
  void Build() {
    for (int i = 0; i < 1000 && !(hostile_ && hostile_->opened()); ++i) {
      if (!hostile_) {
        hostile_ = std::make_unique<HostileEnd>(directory_, "c", true);
        hostile_->MapRoad();
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
  hostile_->sent().head = 1'000'000;
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_.reset();
  EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED");
}

TEST_F(HostileSenderTest, AnEntryOfNoArena) {
  Build();
  road::Message nowhere;
  nowhere.arena = 12345;
  hostile_->Put(nowhere, "");
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_.reset();
  EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED");
}

TEST_F(HostileSenderTest, EntriesThatDescribeNothing) {
  Build();
  const Handle arena = hostile_->MakeArena();
  road::Message said;
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
  const codec::PublishedArray beyond{{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}}, 4096};
  hostile_->Put(said, codec::EncodeDescription({&beyond, 1}, {}, {}));
  EXPECT_EQ(Receive().code(), Code::kInvalidArgument) << "an array beyond its bytes";
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  EXPECT_EQ(broker_.client_stats().live_leases, 0u);
}

TEST_F(HostileSenderTest, ABellThatIsRungWithoutEnd) {
  Build();
  EXPECT_FALSE(hostile_->TakesFiles());
  hostile_->RingWithoutEnd();
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_->Steal();
  EXPECT_EQ(Receive().reason(), "CHANNEL_EMPTY");
  hostile_.reset();
  EXPECT_EQ(receives_->Receive({}).status().reason(), "SENDER_DIED");
}

class HostileReceiverTest : public RoadTest {
 protected:
  HostileReceiverTest() : broker_(options()), sends_(broker_.OpenChannel("c", Channel::Role::kSender, 4)) {}

  // Four shares stand on the road.
  void Build() {
    hostile_ = std::make_unique<HostileEnd>(directory_, "c", false);
    hostile_->MapRoad();
    ASSERT_TRUE(Send(broker_, *sends_, 0).ok());
    while (broker_.GetStats().ok() && !hostile_->opened()) {
    }
    hostile_->taken().calls = 1;  // as if it had received that
    for (; broker_.client_stats().road_shares < 3; ++next_) ASSERT_TRUE(Send(broker_, *sends_, next_).ok());
  }

  Broker broker_;
  Result<Channel> sends_;
  std::unique_ptr<HostileEnd> hostile_;
  uint64_t next_ = 1;
};

TEST_F(HostileReceiverTest, ATailThatCannotBe) {
  Build();
  hostile_->taken().tail = 1'000'000;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(broker_, *sends_, next_++, {}, milliseconds(100)).ok()) << "by calls";
  EXPECT_EQ(broker_.client_stats().road_shares, 3u);
}

TEST_F(HostileReceiverTest, WhatIsNotTakenIsNotDone) {
  Build();
  hostile_->taken().done.fill(UINT64_MAX);
  const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
  for (int i = 0; i < 50; ++i) {
    const auto placement = broker_.Empty({&spec, 1});
    ASSERT_TRUE(placement.ok());
    std::fill_n(static_cast<uint64_t*>(placement->views()[0].data), kWords, 77);
  }
  Broker honest(options());
  auto receives = honest.OpenChannel("c", Channel::Role::kReceiver);
  for (uint64_t i = 0; i < next_; ++i) EXPECT_EQ(RoadTest::Receive(*receives), i);
}

TEST_F(HostileReceiverTest, ABellThatIsRungWithoutEnd) {
  Build();
  hostile_->RingWithoutEnd();
  const Status sent = Send(broker_, *sends_, next_, {}, milliseconds(20));
  EXPECT_TRUE(sent.ok() || sent.reason() == "CHANNEL_FULL") << sent.ToString();
  hostile_.reset();
  Status last;
  while (last.ok() || last.reason() == "CHANNEL_FULL") last = Send(broker_, *sends_, next_, {}, milliseconds(20));
  EXPECT_EQ(last.reason(), "NO_RECEIVER");
}

class NoRoadTest : public RoadPairTest {
 protected:
  NoRoadTest() : RoadPairTest({"--limit", "roads_per_uid=1"}) {}
};

TEST_F(NoRoadTest, SoManyRoadsAndNoMore) {
  MeetHere();
  auto receives = receiver_.OpenChannel("another", Channel::Role::kReceiver);
  auto sends = sender_.OpenChannel("another", Channel::Role::kSender);
  const uint64_t road = on_road();
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(Send(sender_, *sends, i).ok());
    ASSERT_EQ(Receive(*receives), i);
  }
  EXPECT_EQ(on_road(), road) << "by calls: limits.roads_per_uid";
  ASSERT_TRUE(sends_->Close().ok());
  ASSERT_TRUE(receives_->Close().ok());
  ASSERT_TRUE(sender_.Flush().ok());
  uint64_t next = 1000;
  Meet(sender_, *sends, receiver_, *receives, &next);
}

}  // namespace
}  // namespace arraybridge
