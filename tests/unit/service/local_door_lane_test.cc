// What the lane serves, and that nobody loses anything by it: order, ends, others' turns.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "tests/unit/service/local_door_fixture.h"

namespace arraybridge {
namespace {

constexpr int kEnoughForTheLane = 200;

class LocalDoorLaneTest : public LocalDoorTest {
 protected:
  LocalDoorLaneTest() { config_.spin = std::chrono::microseconds(0); }

  void Talk(LifelineClient& client, int calls) {
    for (int i = 0; i < calls; ++i) ASSERT_GT(Stats(client).sessions(), 0u);
  }
  // Until what is said is heard there.
  void BringIntoLane(LifelineClient& client) {
    for (uint64_t before = door_->served_in_lane(); door_->served_in_lane() == before;) Talk(client, 1);
  }
  static std::string Nothing() { return v1::GetStatsRequest().SerializeAsString(); }
};

TEST_F(LocalDoorLaneTest, WhoAloneSaysSomethingIsServedThere) {
  LifelineClient client = Greeted();
  EXPECT_EQ(door_->served_in_lane(), 0u);
  Talk(client, 2 * kEnoughForTheLane);
  EXPECT_GE(door_->served_in_lane(), static_cast<uint64_t>(kEnoughForTheLane));
}

TEST_F(LocalDoorLaneTest, ThereIsNoneWhereTheLoopLooksAgainBeforeItSleeps) {
  cpu_set_t cpus;
  ASSERT_EQ(::sched_getaffinity(0, sizeof cpus, &cpus), 0);
  if (CPU_COUNT(&cpus) == 1) GTEST_SKIP() << "with one processor the loop sleeps at once";
  config_.spin = std::chrono::microseconds(20);
  LifelineClient client = Greeted();
  Talk(client, 2 * kEnoughForTheLane);
  EXPECT_EQ(door_->served_in_lane(), 0u);
}

TEST_F(LocalDoorLaneTest, OthersAreServedWhileSomebodyIsInIt) {
  LifelineClient busy = Greeted();
  LifelineClient other = Greeted();
  BringIntoLane(busy);
  for (int i = 0; i < kEnoughForTheLane; ++i) {
    Talk(busy, 1);
    Talk(other, 1);
  }
}

// Again and again the one is in the lane when the other has something to say.
TEST_F(LocalDoorLaneTest, WhoDoesNotStopSendingHoldsNobodyUp) {
  LifelineClient other = Greeted();
  LifelineClient busy = Greeted();
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) busy.Send(Verb::kGetStats, Nothing(), 7, kFrameNoReply);
  });
  for (int i = 0; i < kEnoughForTheLane; ++i) {
    const uint64_t before = door_->served_in_lane();
    while (door_->served_in_lane() == before) ::sched_yield();
    Talk(other, 1);
  }
  stop = true;
  flood.join();
  Talk(busy, 1);
}

TEST_F(LocalDoorLaneTest, WhoIsSilentLeavesItToTheNext) {
  LifelineClient first = Greeted();
  LifelineClient second = Greeted();
  BringIntoLane(first);
  BringIntoLane(second);
  BringIntoLane(first);
}

TEST_F(LocalDoorLaneTest, UnreadAnswersComeInOrder) {
  config_.limits.output_frames_max = 100'000;
  config_.limits.output_bytes_max = 64 << 20;
  LifelineClient client = Greeted();
  BringIntoLane(client);
  constexpr uint64_t kRequests = 3000;  // more answers than a socket takes
  std::thread sender([&] {
    for (uint64_t i = 1; i <= kRequests; ++i) client.Send(Verb::kGetServerInfo, "", i);
  });
  sender.join();
  for (uint64_t i = 1; i <= kRequests; ++i) ASSERT_EQ(client.Receive().header.request, i);
  BringIntoLane(client);
}

TEST_F(LocalDoorLaneTest, TheEndOfTheStreamEndsTheSession) {
  LifelineClient witness = Greeted();
  LifelineClient client = Greeted();
  BringIntoLane(client);
  client.Close();
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorLaneTest, WhoBreaksTheRulesIsCutThereToo) {
  LifelineClient witness = Greeted();
  LifelineClient client = Greeted();
  BringIntoLane(client);
  ASSERT_EQ(::send(client.fd(), "short", 5, 0), 5);
  EXPECT_EQ(client.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(client.Receive().closed);
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorLaneTest, ADescriptorIsClosedAndItsSenderCut) {
  LifelineClient client = Greeted();
  BringIntoLane(client);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd read(ends[0]), write(ends[1]);
  client.Send(Verb::kGetStats, Nothing(), 1, 0, write.get());
  EXPECT_EQ(client.Receive().code(), Code::kInvalidArgument);
  write.reset();
  char byte;
  EXPECT_EQ(::read(read.get(), &byte, 1), 0);
}

// What it sent before is served, then its session ends, although a child of it has the socket still.
TEST_F(LocalDoorLaneTest, TheDeathOfTheProcessEndsTheSessionAfterWhatItSaid) {
  LifelineClient witness = Greeted();
  Mortal process;
  LifelineClient inherited = Connect(1000, process.descriptor());
  ASSERT_EQ(inherited.Hello().code(), Code::kOk);
  BringIntoLane(inherited);
  constexpr uint64_t kRequests = 5;
  for (uint64_t i = 1; i <= kRequests; ++i) inherited.Send(Verb::kGetStats, Nothing(), i);
  process.Die();
  AwaitSessions(witness, 1);
  for (uint64_t i = 1; i <= kRequests; ++i) ASSERT_EQ(inherited.Receive().header.request, i);
  EXPECT_TRUE(inherited.Receive().closed);
}

// The answer comes from another thread, and what is said meanwhile is answered.
TEST_F(LocalDoorLaneTest, WhoWaitsForANameIsAnsweredWhenItComes) {
  LifelineClient client = Greeted();
  BringIntoLane(client);
  v1::AcquireRequest absent;
  absent.add_shares()->set_name("absent");
  absent.set_timeout_ms(50);
  client.Send(Verb::kAcquire, absent.SerializeAsString(), 77);
  EXPECT_EQ(client.Call(Verb::kGetStats, v1::GetStatsRequest(), 78).header.request, 78u);
  const auto late = client.Receive();
  EXPECT_EQ(late.header.request, 77u);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
}

TEST_F(LocalDoorLaneTest, TheDoorEndsWithWhoIsInIt) {
  LifelineClient client = Greeted();
  BringIntoLane(client);
  door_.reset();
  EXPECT_TRUE(client.Receive().closed);
}

}  // namespace
}  // namespace arraybridge
