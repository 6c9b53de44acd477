// SPDX-License-Identifier: Apache-2.0
// Relays: what R has received from P through a direct channel goes on to S without a copy, whichever of the three ends
// first.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/direct_fixture.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class DirectForwardTest : public DirectTest {
 protected:
  struct End {
    End(const Broker::Options& options, const std::string& name, Channel::Role role)
        : broker(options), channel(*broker.OpenChannel(name, role, 8)) {}
    Broker broker;
    Channel channel;
  };

  DirectForwardTest()
      : p_(std::in_place, options(), "a", Channel::Role::kSender),
        r_(std::in_place, options()),
        s_(std::in_place, options(), "b", Channel::Role::kReceiver),
        from_p_(*r_->OpenChannel("a", Channel::Role::kReceiver)),
        to_s_(*r_->OpenChannel("b", Channel::Role::kSender)) {}

  void Produce(uint64_t number) { ASSERT_TRUE(Send(p_->broker, p_->channel, number).ok()); }
  // Receives from P, and sends on.
  void Relay() {
    const auto received = from_p_->Receive({.timeout = seconds(30)});
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    const auto sent = r_->Send(*to_s_, received->views, {});
    ASSERT_TRUE(sent.ok()) << sent.status().ToString();
    ASSERT_EQ(*sent, Broker::Passed::kForwarded);
  }
  Acquired Take() {
    auto received = s_->channel.Receive({.timeout = seconds(30)});
    EXPECT_TRUE(received.ok()) << received.status().ToString();
    return received.ok() ? *std::move(received) : Acquired{};
  }
  void Pass(uint64_t number) {
    Produce(number);
    Relay();
    ASSERT_EQ(NumberOf(Take()), number);
  }
  // Until P's shares take no call.
  void Meet() {
    uint64_t next = 0;
    DirectTest::Meet(p_->broker, p_->channel, *r_, *from_p_, &next);
  }
  // P's, soon, though S makes no call.
  void ExpectAllMemoryIsBack() {
    const auto until = steady_clock::now() + seconds(20);
    while (p_->broker.client_stats().arenas_written > 0 && steady_clock::now() < until) {
      ASSERT_TRUE(p_->broker.Flush().ok());
      std::this_thread::sleep_for(milliseconds(50));
    }
    EXPECT_EQ(p_->broker.client_stats().arenas_written, 0u);
  }
  // R and its ends are gone, as if it had been killed.
  void EndR() {
    to_s_.reset();
    from_p_.reset();
    r_.reset();
  }

  std::optional<End> p_;
  std::optional<Broker> r_;
  std::optional<End> s_;
  std::optional<Channel> from_p_;
  std::optional<Channel> to_s_;
};

TEST_F(DirectForwardTest, ForwardsCopyNothingAndMemoryComesBack) {
  Meet();
  for (uint64_t i = 0; i < 5000; ++i) Pass(i);
  EXPECT_LE(p_->broker.client_stats().arena_bytes, 2u << 20) << "5000 of 4 KiB are 20 MiB";
  EXPECT_EQ(r_->client_stats().arena_bytes, 0u) << "R has copied nothing";
}

TEST_F(DirectForwardTest, WhatIsReadStaysAsItIsUntilItIsDropped) {
  Meet();
  std::vector<std::pair<uint64_t, Acquired>> kept;
  for (uint64_t i = 0; i < 2000; ++i) {
    Produce(i);
    Relay();
    Acquired taken = Take();
    ASSERT_EQ(NumberOf(taken), i);
    if (i % 50 == 0) kept.emplace_back(i, std::move(taken));
  }
  for (const auto& [number, array] : kept) EXPECT_EQ(NumberOf(array), number);
}

TEST_F(DirectForwardTest, WhatStandsWhenTheRelayEndsArrivesAndWhatWasReadStays) {
  Meet();
  Produce(1);
  Relay();
  std::optional<Acquired> held = Take();
  for (uint64_t i = 2; i < 6; ++i) Produce(i), Relay();
  EndR();
  for (uint64_t i = 2; i < 6; ++i) EXPECT_EQ(NumberOf(Take()), i) << "queued when R ended";
  // P's memory is used again by another receiver's stream.
  r_.emplace(options());
  from_p_ = *r_->OpenChannel("a", Channel::Role::kReceiver);
  static_cast<void>(Send(p_->broker, p_->channel, 0));  // may be told of R's end
  for (uint64_t i = 0; i < 3000; ++i) {
    auto sent = Send(p_->broker, p_->channel, 100 + i);
    if (!sent.ok()) sent = Send(p_->broker, p_->channel, 100 + i);
    ASSERT_TRUE(sent.ok()) << sent.ToString();
    ASSERT_TRUE(from_p_->Receive({.timeout = seconds(30)}).ok());
    ASSERT_EQ(NumberOf(*held), 1u) << "after " << i;
  }
  // Once S has dropped it, P's memory comes back.
  held.reset();
  from_p_.reset();
  r_.reset();
  ExpectAllMemoryIsBack();
}

TEST_F(DirectForwardTest, WhatStandsWhenTheProducerEndsArrives) {
  Meet();
  Produce(1);
  Relay();
  const Acquired held = Take();
  for (uint64_t i = 2; i < 6; ++i) Produce(i), Relay();
  p_.reset();
  for (uint64_t i = 2; i < 6; ++i) EXPECT_EQ(NumberOf(Take()), i);
  EXPECT_EQ(NumberOf(held), 1u);
}

TEST_F(DirectForwardTest, WhoReadsMayEndFirst) {
  Meet();
  for (uint64_t i = 2; i < 6; ++i) Produce(i), Relay();
  s_.reset();
  s_.emplace(options(), "b", Channel::Role::kReceiver);
  for (uint64_t i = 2; i < 6; ++i) EXPECT_EQ(NumberOf(Take()), i);
}

TEST_F(DirectForwardTest, ASecondReceiverEndsTheDirectChannelAndLosesNothing) {
  Meet();
  for (uint64_t i = 2; i < 6; ++i) Produce(i), Relay();
  auto other = s_->broker.OpenChannel("b", Channel::Role::kReceiver);
  ASSERT_TRUE(other.ok());
  for (uint64_t i = 2; i < 6; ++i) EXPECT_EQ(NumberOf(Take()), i);
}

TEST_F(DirectForwardTest, ARelayOfARelayKeepsTheBytesWhenAllButTheLastEnd) {
  std::optional<Broker> t(options());
  auto to_t = *s_->broker.OpenChannel("c", Channel::Role::kSender);
  auto from_s = *t->OpenChannel("c", Channel::Role::kReceiver);
  const auto pass = [&](uint64_t number) {
    Produce(number);
    Relay();
    const Acquired taken = Take();
    const auto forward = s_->broker.PlacementOf(taken.views);
    EXPECT_TRUE(forward.has_value() && to_t.Send(*forward, {}).ok());
    auto last = from_s.Receive({.timeout = seconds(30)});
    EXPECT_TRUE(last.ok());
    return *std::move(last);
  };
  for (uint64_t i = 0; i < 300; ++i) ASSERT_EQ(NumberOf(pass(i)), i);
  const Acquired held = pass(7);
  EndR();
  s_.reset();
  auto other = *t->OpenChannel("a", Channel::Role::kReceiver);
  for (uint64_t i = 0; i < 1000; ++i) {
    auto sent = Send(p_->broker, p_->channel, 100 + i);
    if (!sent.ok()) sent = Send(p_->broker, p_->channel, 100 + i);
    ASSERT_TRUE(sent.ok()) << sent.ToString();
    ASSERT_TRUE(other.Receive({.timeout = seconds(30)}).ok());
    ASSERT_EQ(NumberOf(held), 7u) << "after " << i;
  }
}

TEST_F(DirectForwardTest, OneArrayThatIsSentOnTwiceIsKeptForWhoReadsEither) {
  std::optional<Broker> t(options());
  auto to_t = *s_->broker.OpenChannel("c", Channel::Role::kSender);
  auto from_s = *t->OpenChannel("c", Channel::Role::kReceiver);
  Meet();
  std::vector<std::pair<uint64_t, Acquired>> held;
  for (uint64_t i = 0; i < 400; ++i) {
    Produce(i);
    const auto received = from_p_->Receive({.timeout = seconds(30)});
    ASSERT_TRUE(received.ok());
    for (int twice = 0; twice < 2; ++twice) {
      const auto forward = r_->PlacementOf(received->views);
      ASSERT_TRUE(forward && to_s_->Send(*forward, {}).ok());
    }
    std::optional<Acquired> one = Take();
    std::optional<Acquired> other = Take();
    const auto forward = s_->broker.PlacementOf(i % 2 == 0 ? one->views : other->views);
    ASSERT_TRUE(forward.has_value());
    i % 3 == 0 ? one.reset() : other.reset();
    const auto sent = to_t.Send(*forward, {});
    ASSERT_TRUE(sent.ok()) << i << ": " << sent.ToString();
    one.reset();
    other.reset();
    auto last = from_s.Receive({.timeout = seconds(30)});
    ASSERT_TRUE(last.ok());
    ASSERT_EQ(NumberOf(*last), i);
    if (i % 8 == 0) held.emplace_back(i, *std::move(last));
  }
  for (const auto& [number, array] : held) EXPECT_EQ(NumberOf(array), number);
}

TEST_F(DirectForwardTest, ARelayMaySendToItself) {
  auto out = *r_->OpenChannel("self", Channel::Role::kSender);
  auto in = *r_->OpenChannel("self", Channel::Role::kReceiver);
  Meet();
  const auto send_on = [&](const Acquired& array) {
    const auto forward = r_->PlacementOf(array.views);
    ASSERT_TRUE(forward && forward->forward());
    ASSERT_TRUE(out.Send(*forward, {}).ok());
  };
  for (uint64_t i = 0; i < 300; ++i) {
    Produce(i);
    send_on(*from_p_->Receive({.timeout = seconds(30)}));
    send_on(*in.Receive({.timeout = seconds(30)}));
    ASSERT_EQ(NumberOf(*in.Receive({.timeout = seconds(30)})), i);
  }
}

TEST_F(DirectForwardTest, BytesThatGoInACircleArriveWithoutACopy) {
  auto back = *s_->broker.OpenChannel("back", Channel::Role::kSender);
  auto returns = *r_->OpenChannel("back", Channel::Role::kReceiver);
  Meet();
  for (uint64_t i = 0; i < 300; ++i) {
    Produce(i);
    Relay();
    {
      const Acquired there = Take();
      const auto forward = s_->broker.PlacementOf(there.views);
      ASSERT_TRUE(forward && forward->forward() && back.Send(*forward, {}).ok());
    }
    {
      const auto here = returns.Receive({.timeout = seconds(30)});
      ASSERT_TRUE(here.ok());
      const auto again = r_->PlacementOf(here->views);
      ASSERT_TRUE(again && again->forward() && to_s_->Send(*again, {}).ok()) << i;
    }
    ASSERT_EQ(NumberOf(Take()), i);
  }
}

TEST_F(DirectTest, AStreamOverTwoRelaysIsComplete) {
  Process receiver(Program({"receive", "third"}));
  Process two(Program({"relay", "second", "third"}));
  Process one(Program({"relay", "first", "second"}));
  Process sender(Program({"send", "first", "20000", "16"}));
  std::string end;
  EXPECT_EQ(Numbers(receiver, &end), UpTo(20000));
  EXPECT_EQ(end, "CHANNEL_ENDED") << one.Line() << two.Line();
  EXPECT_EQ(sender.Wait() + one.Wait() + two.Wait(), 0);
}

// The receiver keeps the latest arrays, and looks at each again before it drops it.
TEST_F(DirectTest, RelaysAreKilledUnderLoad) {
  constexpr uint64_t kKills = 12;
  Broker p(options());
  Broker s(options());
  auto sends = *p.OpenChannel("first", Channel::Role::kSender, 16);
  auto receives = *s.OpenChannel("third", Channel::Role::kReceiver, 16);
  std::atomic<bool> stops{false};
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> arrived{0};
  std::thread producer([&] {
    for (; !stops; ++sent) {
      const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
      auto placement = p.Empty({&spec, 1});
      ASSERT_TRUE(placement.ok()) << placement.status().ToString();
      std::fill_n(static_cast<uint64_t*>(placement->views()[0].data), kWords, sent.load());
      const Status told = sends.Send(*placement, {.timeout = seconds(30), .on_peer_death = PeerDeath::kWait});
      ASSERT_TRUE(told.ok()) << told.ToString();
    }
    EXPECT_TRUE(sends.Close().ok());
  });
  std::thread killer([&] {
    for (uint64_t i = 0; i < kKills; ++i) {
      Process one(Program({"relay", "first", "second"}));
      Process two(Program({"relay", "second", "third"}));
      const uint64_t before = arrived;
      const auto patience = std::chrono::steady_clock::now() + seconds(10);
      while (arrived < before + 10 && std::chrono::steady_clock::now() < patience) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      std::this_thread::sleep_for(milliseconds(7 * i));
      i % 2 == 0 ? one.Kill() : two.Kill();
      std::this_thread::sleep_for(milliseconds(20));
      i % 2 == 0 ? two.Kill() : one.Kill();
    }
    stops = true;
    Process one(Program({"relay", "first", "second"}));
    Process two(Program({"relay", "second", "third"}));
    EXPECT_EQ(one.Wait() + two.Wait(), 0);
  });
  std::deque<std::pair<uint64_t, Acquired>> kept;
  uint64_t next = 0;
  uint64_t lost = 0;
  while (true) {
    auto received = receives.Receive({.timeout = seconds(30), .on_peer_death = PeerDeath::kWait});
    if (!received.ok()) {
      EXPECT_EQ(received.status().reason(), "CHANNEL_ENDED");
      break;
    }
    const uint64_t number = NumberOf(*received);
    ASSERT_GE(number, next);
    lost += number - next;
    next = number + 1;
    ++arrived;
    kept.emplace_back(number, *std::move(received));
    if (kept.size() < 64) continue;
    ASSERT_EQ(NumberOf(kept.front().second), kept.front().first) << "it was written again";
    kept.pop_front();
  }
  for (const auto& [number, array] : kept) EXPECT_EQ(NumberOf(array), number);
  producer.join();
  killer.join();
  EXPECT_EQ(next, sent.load());
  EXPECT_LE(lost, 2 * kKills) << "each relay had one array in its hands";
  EXPECT_GT(arrived.load(), 100u);
}

}  // namespace
}  // namespace arraybridge
