// SPDX-License-Identifier: Apache-2.0
#include "client/process/reclaimer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace arraybridge {
namespace {

struct Numbered : DeferredRelease {
  explicit Numbered(int of, bool waits = false) : number(of), waits_for_a_device(waits) {}
  bool Waits() const override { return waits_for_a_device; }
  const int number;
  const bool waits_for_a_device;
};

// Counts the reclaimed objects and their threads.
class Graveyard {
 public:
  Reclaimer::Reclaim reclaim() {
    return [this](Reclaimer::Batch batch) {
      std::lock_guard lock(mutex_);
      largest_ = std::max(largest_, batch.size());
      for (auto& one : batch) numbers_.insert(static_cast<Numbered&>(*one).number);
      threads_.insert(std::this_thread::get_id());
      changed_.notify_all();
    };
  }
  void WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return numbers_.size() >= count; });
  }
  std::multiset<int> numbers() {
    std::lock_guard lock(mutex_);
    return numbers_;
  }
  size_t largest() {
    std::lock_guard lock(mutex_);
    return largest_;
  }
  std::set<std::thread::id> threads() {
    std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multiset<int> numbers_;
  std::set<std::thread::id> threads_;
  size_t largest_ = 0;
};

std::shared_ptr<Numbered> Adopt(Reclaimer& reclaimer, int number) {
  auto adopted = reclaimer.Adopt(std::make_unique<Numbered>(number));
  EXPECT_TRUE(adopted.ok()) << adopted.status().ToString();
  return *std::move(adopted);
}

TEST(ReclaimerTest, AThreadInAHurryLeavesWhatWaitsForADeviceToTheReclaimer) {
  Graveyard graveyard;
  std::atomic<bool> waits_reclaimed_here{false};
  const auto caller = std::this_thread::get_id();
  const auto reclaim = [&](Reclaimer::Batch batch) {
    for (const auto& one : batch) {
      if (one->Waits() && std::this_thread::get_id() == caller) waits_reclaimed_here = true;
    }
    graveyard.reclaim()(std::move(batch));
  };
  const auto reclaimer = Reclaimer::Make(reclaim);
  for (int i = 0; i < 100; ++i) {
    auto waits = reclaimer->Adopt(std::make_unique<Numbered>(2 * i, true));
    auto ready = reclaimer->Adopt(std::make_unique<Numbered>(2 * i + 1));
    ASSERT_TRUE(waits.ok() && ready.ok());
    waits->reset();
    ready->reset();
    reclaimer->CollectReady();
    EXPECT_EQ(graveyard.numbers().count(2 * i + 1), 1u) << "what is ready is reclaimed when it returns";
  }
  graveyard.WaitFor(200);  // by the reclaimer's thread, without another call
  EXPECT_FALSE(waits_reclaimed_here);
  auto last = reclaimer->Adopt(std::make_unique<Numbered>(200, true));
  last->reset();
  reclaimer->Collect();
  EXPECT_EQ(graveyard.numbers().count(200), 1u) << "who collects everything waits";
}

// The test decides when its device has finished.
struct AtDevice : Numbered {
  AtDevice(int of, const std::atomic<DeviceEvent::State>& says) : Numbered(of, true), state(says) {}
  DeviceEvent::State PollDevice() override { return state; }
  const std::atomic<DeviceEvent::State>& state;
};

// DeferredRelease 1 waits for a busy device, and 2 for one that has finished.
class BusyReclaimerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(first.ok() && second.ok()); }

  Graveyard graveyard;
  std::atomic<DeviceEvent::State> busy{DeviceEvent::State::kPending};
  const std::atomic<DeviceEvent::State> idle{DeviceEvent::State::kPassed};
  const std::shared_ptr<Reclaimer> reclaimer = Reclaimer::Make(graveyard.reclaim());
  Result<std::shared_ptr<AtDevice>> first = reclaimer->Adopt(std::make_unique<AtDevice>(1, busy));
  Result<std::shared_ptr<AtDevice>> second = reclaimer->Adopt(std::make_unique<AtDevice>(2, idle));
};

TEST_F(BusyReclaimerTest, WhatADeviceStillUsesKeepsNothingElseWaiting) {
  first->reset();
  second->reset();
  Adopt(*reclaimer, 3).reset();
  graveyard.WaitFor(2);
  EXPECT_EQ(graveyard.numbers().count(1), 0u);
  busy = DeviceEvent::State::kPassed;
  graveyard.WaitFor(3);
}

TEST_F(BusyReclaimerTest, WhoWaitsForADeviceKeepsNobodyElseWaiting) {
  first->reset();
  std::thread collects([&] {
    reclaimer->Collect();
    EXPECT_EQ(graveyard.numbers().count(1), 1u);
  });
  second->reset();
  Adopt(*reclaimer, 3).reset();
  graveyard.WaitFor(2);
  EXPECT_EQ(graveyard.numbers(), (std::multiset<int>{2, 3}));
  busy = DeviceEvent::State::kPassed;
  collects.join();
}

TEST(ReclaimerTest, WhoCollectsHasADeadline) {
  Graveyard graveyard;
  std::atomic<DeviceEvent::State> busy{DeviceEvent::State::kPending};
  const auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  auto used = reclaimer->Adopt(std::make_unique<AtDevice>(1, busy));
  ASSERT_TRUE(used.ok());
  used->reset();
  EXPECT_FALSE(reclaimer->Collect(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
  EXPECT_EQ(graveyard.numbers().count(1), 0u);
  busy = DeviceEvent::State::kPassed;
  graveyard.WaitFor(1);  // without another call
  EXPECT_TRUE(reclaimer->Collect());
}

TEST(ReclaimerTest, WhoCollectsDoesNotWaitForTheEndOfACapture) {
  Graveyard graveyard;
  std::atomic<DeviceEvent::State> state{DeviceEvent::State::kHeldUp};
  const auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  auto held_up = reclaimer->Adopt(std::make_unique<AtDevice>(1, state));
  ASSERT_TRUE(held_up.ok());
  held_up->reset();
  reclaimer->Collect();
  EXPECT_EQ(graveyard.numbers().count(1), 0u);
  state = DeviceEvent::State::kPassed;
  graveyard.WaitFor(1);  // without another call
}

TEST(ReclaimerTest, ReclaimsWhatForeignThreadsDropExactlyOnce) {
  constexpr int kThreads = 8;
  constexpr int kEach = 2000;
  Graveyard graveyard;
  const auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    std::vector<std::shared_ptr<Numbered>> mine;
    for (int i = 0; i < kEach; ++i) mine.push_back(Adopt(*reclaimer, t * kEach + i));
    threads.emplace_back([mine = std::move(mine)]() mutable {
      for (auto& one : mine) one.reset();
    });
  }
  for (auto& thread : threads) thread.join();
  graveyard.WaitFor(kThreads * kEach);
  const auto numbers = graveyard.numbers();
  EXPECT_EQ(numbers.size(), static_cast<size_t>(kThreads * kEach));
  EXPECT_EQ(std::set<int>(numbers.begin(), numbers.end()).size(), numbers.size());
  EXPECT_GT(graveyard.largest(), 1u) << "drops are batched";
  EXPECT_FALSE(graveyard.threads().contains(std::this_thread::get_id()));
  reclaimer->Retire();
}

TEST(ReclaimerTest, CollectReclaimsOnTheCaller) {
  Graveyard graveyard;
  const auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  auto first = Adopt(*reclaimer, 1);
  auto second = Adopt(*reclaimer, 2);
  EXPECT_EQ(reclaimer->living(), 2u);
  first.reset();
  reclaimer->Collect();
  graveyard.WaitFor(1);
  EXPECT_EQ(graveyard.numbers(), std::multiset<int>{1});
  second.reset();
  graveyard.WaitFor(2);
  reclaimer->Retire();
}

TEST(ReclaimerTest, OutlivesItsMakerWhileSomethingLives) {
  Graveyard graveyard;
  auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  auto last = Adopt(*reclaimer, 7);
  const std::weak_ptr<Reclaimer> watch = reclaimer;
  reclaimer->Retire();
  reclaimer.reset();
  EXPECT_FALSE(watch.expired());
  last.reset();
  graveyard.WaitFor(1);
  while (!watch.expired()) std::this_thread::yield();
}

TEST(ReclaimerTest, IdleWorkRunsAfterADropAndWhenNudged) {
  Graveyard graveyard;
  std::mutex mutex;
  std::condition_variable changed;
  int runs = 0;
  const auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  reclaimer->SetIdle([&] {
    std::lock_guard lock(mutex);
    ++runs;
    changed.notify_all();
    return std::chrono::milliseconds(-1);
  });
  const auto wait_for = [&](int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return runs >= count; });
    return runs;
  };
  Adopt(*reclaimer, 1).reset();
  graveyard.WaitFor(1);
  const int before = wait_for(1);
  reclaimer->Nudge();
  wait_for(before + 1);
  auto last = Adopt(*reclaimer, 2);
  reclaimer->Retire();
  last.reset();
  graveyard.WaitFor(2);
  while (reclaimer.use_count() > 1) std::this_thread::yield();  // its thread has ended
}

// Half a fork: the callback of the parent.
TEST(ReclaimerTest, WhatAChildInheritedStaysUntilTheChildIsGone) {
  Graveyard graveyard;
  const auto reclaimer = Reclaimer::Make(graveyard.reclaim());
  auto inherited = Adopt(*reclaimer, 1);
  int life[2];
  ASSERT_EQ(::pipe(life), 0);
  reclaimer->AfterForkInParent(life[0]);
  ::close(life[0]);
  auto later = Adopt(*reclaimer, 2);
  inherited.reset();
  later.reset();
  graveyard.WaitFor(1);
  reclaimer->Collect();
  EXPECT_EQ(graveyard.numbers(), std::multiset<int>{2});
  ::close(life[1]);
  graveyard.WaitFor(2);
  reclaimer->Retire();
}

TEST(ReclaimerTest, ReclaimsAlsoWhatWasDroppedByAReclaim) {
  std::vector<int> reclaimed;
  const auto reclaimer = Reclaimer::Make([&](Reclaimer::Batch batch) {
    for (auto& one : batch) reclaimed.push_back(static_cast<Numbered&>(*one).number), one.reset();
  });
  struct Outer final : Numbered {
    Outer(int of, std::shared_ptr<Numbered> inner) : Numbered(of), held(std::move(inner)) {}
    std::shared_ptr<Numbered> held;
  };
  auto adopted = reclaimer->Adopt(std::make_unique<Outer>(1, Adopt(*reclaimer, 2)));
  ASSERT_TRUE(adopted.ok());
  *adopted = nullptr;
  EXPECT_TRUE(reclaimer->Collect());
  EXPECT_EQ(reclaimed, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace arraybridge
