// SPDX-License-Identifier: Apache-2.0
// Direct channels that begin and end while threads of an end do something else. A thread is held where its client asks
// whether it is interrupted, as if the system did not schedule it.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/integration/direct_fixture.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class DirectRacesTest : public DirectTest {
 protected:
  DirectRacesTest() {
    Broker::Options held = options();
    held.interrupted = [this] { return Hold(); };
    receiver_.emplace(held);
    third_.emplace(options());
    sender_.emplace(options());
    receives_.emplace(*receiver_->OpenChannel("c", Channel::Role::kReceiver, 4));
    sends_.emplace(*sender_->OpenChannel("c", Channel::Role::kSender));
  }

  void MeetHere() { Meet(*sender_, *sends_, *receiver_, *receives_, &next_); }
  // A third end joins and leaves: the direct channel is revoked.
  void Visit() {
    auto visitor = third_->OpenChannel("c", Channel::Role::kReceiver);
    ASSERT_TRUE(visitor.ok());
    ASSERT_TRUE(visitor->Close().ok());
  }
  // From now on the thread that calls HoldMe is held at its next wait, until Release.
  void HoldMe() { held_ = std::this_thread::get_id(); }
  void AwaitHeld() {
    while (!is_held_.load()) std::this_thread::sleep_for(milliseconds(1));
  }
  void Release() { released_ = true; }

  std::optional<Broker> sender_;
  std::optional<Broker> receiver_;
  std::optional<Broker> third_;
  std::optional<Channel> sends_;
  std::optional<Channel> receives_;
  uint64_t next_ = 0;
  std::atomic<bool> armed_{false};

 private:
  bool Hold() {
    if (!armed_.load() || held_.load() != std::this_thread::get_id()) return false;
    is_held_ = true;
    while (!released_.load()) std::this_thread::sleep_for(milliseconds(1));
    return false;
  }

  std::atomic<std::thread::id> held_{};
  std::atomic<bool> is_held_{false};
  std::atomic<bool> released_{false};
};

// One of the threads gets the share, and the other one is told that shares come by the direct channel.
TEST_F(DirectRacesTest, TwoThreadsOfOneEndReceiveSharesByCalls) {
  constexpr uint64_t kShares = 3000;
  MeetHere();
  std::atomic<uint64_t> received{0};
  std::atomic<bool> stop{false};
  const auto take = [&] {
    while (!stop) {
      const auto got = receives_->Receive({.timeout = milliseconds(100)});
      if (got.ok()) received.fetch_add(1);
    }
  };
  std::thread one(take);
  std::thread two(take);
  const std::string long_metadata(300, 'x');  // no entry can carry it
  uint64_t sent = 0;
  while (sent < kShares && !HasFailure()) {
    EXPECT_TRUE(Send(*sender_, *sends_, sent, long_metadata).ok());
    ++sent;
    const auto until = std::chrono::steady_clock::now() + seconds(10);
    while (received.load() < sent && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(received.load(), sent);
  }
  stop = true;
  one.join();
  two.join();
}

TEST_F(DirectRacesTest, AConsumerThatMapsARevokedDirectChannelDoesNotOpenTheNextOne) {
  std::atomic<uint64_t> first{0};
  daemon_->Signal(SIGSTOP);  // the receiver has asked, and has not read the answer
  armed_ = true;
  std::thread waits([&] {
    HoldMe();
    first = Receive(*receives_);
  });
  AwaitHeld();
  daemon_->Signal(SIGCONT);
  std::this_thread::sleep_for(milliseconds(50));
  Visit();
  ASSERT_TRUE(Send(*sender_, *sends_, 7).ok());
  ASSERT_TRUE(sender_->GetStats().ok());
  Release();
  waits.join();
  EXPECT_EQ(first.load(), 7u);
  for (uint64_t number = 8; number < 40; ++number) {
    ASSERT_TRUE(Send(*sender_, *sends_, number).ok());
    ASSERT_EQ(Receive(*receives_), number);
  }
  EXPECT_EQ(receives_->Receive({.timeout = milliseconds(20)}).status().reason(), "CHANNEL_EMPTY");
}

TEST_F(DirectRacesTest, AThreadThatLeavesLateLeavesNoOtherDirectChannel) {
  MeetHere();
  std::atomic<uint64_t> last{0};
  armed_ = true;
  std::thread waits([&] {
    HoldMe();
    last = Receive(*receives_);
  });
  AwaitHeld();
  Visit();
  MeetHere();  // in another direct channel
  Release();
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(Send(*sender_, *sends_, 4242).ok());
  waits.join();
  EXPECT_EQ(last.load(), 4242u);
  ASSERT_TRUE(Send(*sender_, *sends_, 4243).ok());
  EXPECT_EQ(Receive(*receives_), 4243u);
}

TEST_F(DirectRacesTest, OneThatIsRevokedBeforeItOpensIsReplaced) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(Send(*sender_, *sends_, i).ok());  // the producer has asked and mapped
  ASSERT_TRUE(sender_->GetStats().ok());
  Visit();
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Receive(*receives_), i);
  MeetHere();
}

}  // namespace
}  // namespace arraybridge
