// SPDX-License-Identifier: Apache-2.0
// Waited Broker::Put: in one step, without a Placement, and without losing memory if it is refused. And Broker::Send.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <arraybridge/broker.h>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

class WaitedPutTest : public DaemonTest {
 protected:
  static constexpr size_t kBytes = 4096;

  Broker::Options options() const { return {.address = directory_, .timeout = std::chrono::seconds(30)}; }
  static View ViewOf(const std::vector<uint8_t>& content) {
    return *Describe(const_cast<uint8_t*>(content.data()), {1, 8, 1}, {static_cast<int64_t>(content.size())}, {},
                     Device{}, true, nullptr);
  }
  static Result<Share> Put(Broker& broker, const Broker::PublishOptions& options, uint8_t fill, size_t bytes = kBytes) {
    const std::vector<uint8_t> content(bytes, fill);
    const View view = ViewOf(content);
    return broker.Put({&view, 1}, options);
  }
  static bool Holds(Broker& broker, const std::string& name, uint8_t fill) {
    const auto got = broker.Acquire({.name = name});
    if (!got.ok()) return false;
    const std::vector<uint8_t> expected(got->views[0].nbytes(), fill);
    return std::memcmp(got->views[0].data, expected.data(), expected.size()) == 0;
  }
};

TEST_F(WaitedPutTest, OverAndOverTakesTheSameMemory) {
  Broker writer(options());
  Broker reader(options());
  for (int i = 0; i < 2000; ++i) {
    const auto put = Put(writer, {.name = "frame", .replace = true}, static_cast<uint8_t>(i));
    ASSERT_TRUE(put.ok()) << put.status().ToString();
    ASSERT_NE(put->id, 0u);
    ASSERT_EQ(put->arrays.size(), 1u);
    if (i % 100 == 0) {
      ASSERT_TRUE(Holds(reader, "frame", static_cast<uint8_t>(i)));
    }
  }
  EXPECT_LE(writer.client_stats().arena_bytes, 2u << 20);
}

TEST_F(WaitedPutTest, WhatIsRefusedKeepsNoMemory) {
  Broker writer(options());
  ASSERT_TRUE(Put(writer, {.name = "taken"}, 1).ok());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Put(writer, {.name = "taken"}, 2).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(Holds(writer, "taken", 1));
  EXPECT_LE(writer.client_stats().arena_bytes, 2u << 20) << "1000 of 4 KiB would be twice that";
}

TEST_F(WaitedPutTest, ALargerOneGetsAnArenaAndKeepsIt) {
  Broker writer(options());
  constexpr size_t kLarge = 8 << 20;
  for (uint8_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(Put(writer, {.name = "large", .replace = true}, i, kLarge).ok());
    ASSERT_TRUE(Holds(writer, "large", i));
  }
  EXPECT_LE(writer.client_stats().arena_bytes, 5 * kLarge);
}

TEST_F(WaitedPutTest, ATimeThatHasPassedLongAgoHasPassed) {
  Broker broker({.address = directory_});
  EXPECT_FALSE(broker.Acquire({.name = "none"}, {.wait = -std::chrono::milliseconds(10'000'000'000'000)}).ok());
}

TEST_F(WaitedPutTest, TheLongestTimeoutIsLong) {
  Broker broker({.address = directory_, .timeout = std::chrono::milliseconds::max()});
  Channel receives = *broker.OpenChannel("frames", Channel::Role::kReceiver);
  Channel sends = *broker.OpenChannel("frames", Channel::Role::kSender);
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::vector<uint8_t> content(kBytes, 7);
    const View view = ViewOf(content);
    EXPECT_TRUE(broker.Send(sends, {&view, 1}, {.timeout = std::chrono::milliseconds::max()}).ok());
    EXPECT_TRUE(broker.Put({&view, 1}, {.name = "frame"}).ok());
  });
  EXPECT_TRUE(receives.Receive({.timeout = std::chrono::milliseconds::max()}).ok());
  EXPECT_TRUE(broker.Acquire({.name = "frame"}, {.wait = std::chrono::milliseconds::max()}).ok());
  sender.join();
}

TEST_F(WaitedPutTest, WithoutANameItIsFoundByItsNumber) {
  Broker writer(options());
  ASSERT_TRUE(Put(writer, {.name = "first"}, 1).ok());
  const auto put = Put(writer, {}, 3);
  ASSERT_TRUE(put.ok()) << put.status().ToString();
  EXPECT_TRUE(put->unnamed);
  EXPECT_TRUE(writer.Acquire({.id = put->id, .generation = put->generation}).ok());
}

TEST_F(WaitedPutTest, ABrokerThatCameBackIsPutTo) {
  Broker writer(options());
  ASSERT_TRUE(Put(writer, {.name = "frame"}, 1).ok());
  daemon_->Kill();
  Start();
  const auto put = Put(writer, {.name = "frame"}, 2);
  ASSERT_TRUE(put.ok()) << put.status().ToString();
  EXPECT_TRUE(Holds(writer, "frame", 2));
}

// The timeout starts with the request, however long the copy before it takes.
TEST_F(WaitedPutTest, ASlowCopyTakesNoTimeFromTheCall) {
  using std::chrono::steady_clock;
  Broker::Options hasty = options();
  hasty.timeout = std::chrono::seconds(1);
  Broker writer(hasty);
  constexpr int64_t kSide = 16384;
  std::vector<uint8_t> content(kSide * kSide, 5);
  View transposed = ViewOf(content);
  transposed.shape = {kSide, kSide};
  transposed.strides = {1, kSide};
  const auto put = [&] { return writer.Put({&transposed, 1}, {.name = "slow", .replace = true}); };
  // A busy machine may need longer than the timeout to make memory, and one that stalls for any call. The first two
  // puts make the memory of all.
  int made = 0;
  steady_clock::duration longest{};
  for (int i = 0; i < 20 && made < 4; ++i) {
    const auto begun = steady_clock::now();
    const auto done = put();
    ASSERT_TRUE(done.ok() || done.status().code() == Code::kDeadlineExceeded) << done.status().ToString();
    if (done.ok() && ++made > 2) longest = std::max(longest, steady_clock::now() - begun);
  }
  ASSERT_EQ(made, 4);
  if (longest < hasty.timeout) GTEST_SKIP() << "256 MiB are copied byte by byte in less than a second here";
}

TEST_F(WaitedPutTest, SealedItHasAnArenaOfItsOwn) {
  Broker writer(options());
  ASSERT_TRUE(Put(writer, {.name = "first"}, 1).ok());
  const auto put = Put(writer, {.name = "sealed", .sealed = true}, 4);
  ASSERT_TRUE(put.ok()) << put.status().ToString();
  EXPECT_EQ(put->immutability, Immutability::kEnforced);
  EXPECT_TRUE(Holds(writer, "sealed", 4));
}

TEST_F(WaitedPutTest, WhatCannotBePutIsRefused) {
  Broker writer(options());
  ASSERT_TRUE(Put(writer, {.name = "first"}, 1).ok());
  EXPECT_EQ(writer.Put({}, {.name = "nothing"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Put(writer, {.name = std::string(100000, 'n')}, 1).status().code(), Code::kInvalidArgument);
}

TEST_F(WaitedPutTest, OfWhatWasAcquiredIsNotCopied) {
  Broker writer(options());
  Broker relay(options());
  ASSERT_TRUE(Put(writer, {.name = "source"}, 7).ok());
  for (const auto mode : {MapMode::kShared, MapMode::kPrivate}) {
    const uint64_t before = writer.GetStats()->forwards_total;
    auto got = relay.Acquire({.name = "source"}, {.mode = mode});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_TRUE(relay.Put(got->views, {.name = "forward", .replace = true}).ok());
    EXPECT_EQ(writer.GetStats()->forwards_total, before + 1);
    ASSERT_TRUE(relay.Put(got->views, {.name = "copy", .replace = true, .forward = false}).ok());
    EXPECT_EQ(writer.GetStats()->forwards_total, before + 1);
    if (mode == MapMode::kShared) continue;
    static_cast<uint8_t*>(got->views[0].data)[0] = 8;
    std::string_view why;
    EXPECT_FALSE(relay.PlacementOf(got->views, &why));
    EXPECT_EQ(why, "WRITTEN");
    ASSERT_TRUE(relay.Put(got->views, {.name = "written"}).ok());
    EXPECT_EQ(writer.GetStats()->forwards_total, before + 1);
  }
  EXPECT_TRUE(Holds(writer, "forward", 7));
  EXPECT_TRUE(Holds(writer, "copy", 7));
  EXPECT_FALSE(Holds(writer, "written", 7));
}

TEST_F(WaitedPutTest, AForwardIsSentAsAnyPlacement) {
  Broker writer(options());
  Broker relay(options());
  ASSERT_TRUE(Put(writer, {.name = "source"}, 7).ok());
  auto sends = relay.OpenChannel("frames", Channel::Role::kSender);
  auto receives = writer.OpenChannel("frames", Channel::Role::kReceiver);
  ASSERT_TRUE(sends.ok() && receives.ok());
  {
    const auto got = relay.Acquire({.name = "source"});
    ASSERT_TRUE(got.ok());
    const auto forward = relay.PlacementOf(got->views);
    ASSERT_TRUE(forward && forward->forward() != nullptr);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(sends->Send(*forward, {}).ok()) << "as often as wanted";
    EXPECT_FALSE(Broker(options()).PlacementOf(got->views)) << "another connection";
  }
  ASSERT_TRUE(writer.Withdraw({.name = "source"}).ok());
  for (int i = 0; i < 3; ++i) {
    const auto received = receives->Receive({});
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    EXPECT_EQ(*static_cast<const uint8_t*>(received->views[0].data), 7);
  }
  EXPECT_EQ(writer.GetStats()->forwards_total, 3u);
}

// Broker::Send into a channel whose ends are both here.
class BrokerSendTest : public WaitedPutTest {
 protected:
  Result<Placement> Born() {
    const ArraySpec spec{.type = {1, 8, 1}, .dtype = "uint8", .shape = {kBytes}, .strides = {}};
    return broker_.Empty({&spec, 1});
  }

  Broker broker_{options()};
  Channel sends_ = *broker_.OpenChannel("frames", Channel::Role::kSender);
  Channel receives_ = *broker_.OpenChannel("frames", Channel::Role::kReceiver);
};

TEST_F(BrokerSendTest, ASendSaysHowTheArraysCameIn) {
  const std::vector<uint8_t> content(kBytes, 7);
  const View elsewhere = ViewOf(content);
  EXPECT_EQ(*broker_.Send(sends_, {&elsewhere, 1}, {}), Broker::Passed::kCopied);
  const auto born = Born();
  ASSERT_TRUE(born.ok());
  std::memset(born->views()[0].data, 8, kBytes);
  EXPECT_EQ(*broker_.Send(sends_, born->views(), {}, true), Broker::Passed::kInPlace);
  const auto copied = receives_.Receive({});
  const auto in_place = receives_.Receive({});
  ASSERT_TRUE(copied.ok() && in_place.ok());
  EXPECT_EQ(static_cast<const uint8_t*>(copied->views[0].data)[0], 7);
  EXPECT_EQ(static_cast<const uint8_t*>(in_place->views[0].data)[0], 8);
  for (const auto& received : {*copied, *in_place}) {
    EXPECT_EQ(*broker_.Send(sends_, received.views, {}), Broker::Passed::kForwarded);
    const auto again = receives_.Receive({});
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->views[0].data, received.views[0].data) << "the same bytes";
  }
  EXPECT_EQ(broker_.Send(sends_, {}, {}).status().code(), Code::kInvalidArgument) << "no array";
}

TEST_F(BrokerSendTest, ASendCopiesMemoryThatItsOwnerMayStillWrite) {
  const auto born = Born();
  ASSERT_TRUE(born.ok());
  std::memset(born->views()[0].data, 1, kBytes);
  EXPECT_EQ(*broker_.Send(sends_, born->views(), {}), Broker::Passed::kCopied);
  std::memset(born->views()[0].data, 2, kBytes);
  EXPECT_EQ(static_cast<const uint8_t*>(receives_.Receive({})->views[0].data)[0], 1);
  EXPECT_TRUE(broker_.Publish(*born, {.name = "born"}).ok());
}

TEST_F(BrokerSendTest, ACheckOfTheWrongEndTakesNothing) {
  const std::vector<uint8_t> content(kBytes, 7);
  const View view = ViewOf(content);
  ASSERT_TRUE(broker_.Send(sends_, {&view, 1}, {}).ok());
  uint64_t seen = sends_.seen_notice();
  EXPECT_TRUE(sends_.Check(PeerDeath::kTell, &seen).ok());
  EXPECT_EQ(receives_.Check(PeerDeath::kTell, &seen).reason(), "WRONG_END");
  EXPECT_TRUE(receives_.Receive({}).ok());
}

}  // namespace
}  // namespace arraybridge
