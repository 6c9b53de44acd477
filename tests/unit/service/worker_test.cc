// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/worker.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace arraybridge::daemon {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

TEST(WorkerTest, RunsTasksInTheOrderTheyCame) {
  std::vector<int> ran;
  {
    Worker worker("test");
    for (int i = 0; i < 100; ++i) worker.Post([&ran, i] { ran.push_back(i); });
  }
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(WorkerTest, TimersRunInTheOrderOfTheirTimesAndNotBefore) {
  Worker worker("test");
  const auto start = SteadyClock::now();
  std::promise<void> done;
  std::vector<int> ran;
  worker.PostAt(start + milliseconds(20), [&] {
    ran.push_back(2);
    done.set_value();
  });
  worker.PostAt(start + milliseconds(5), [&ran] { ran.push_back(1); });
  done.get_future().get();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
  EXPECT_GE(SteadyClock::now(), start + milliseconds(20));
}

TEST(WorkerTest, AnEarlierTimerWakesAThreadThatSleepsForALaterOne) {
  Worker worker("test");
  worker.PostAt(SteadyClock::now() + hours(1), [] {});
  std::promise<void> done;
  worker.PostAt(SteadyClock::now() + milliseconds(1), [&done] { done.set_value(); });
  done.get_future().get();
}

TEST(WorkerTest, ItsEndRunsWhatWasPostedAndDropsWhatWasNotDue) {
  bool posted = false;
  bool timed = false;
  {
    Worker worker("test");
    worker.PostAt(SteadyClock::now() + hours(1), [&timed] { timed = true; });
    worker.Post([&posted] { posted = true; });
  }
  EXPECT_TRUE(posted);
  EXPECT_FALSE(timed);
}

TEST(WorkerTest, WaitIdleWaitsForWhatWasPostedBefore) {
  Worker worker("test");
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  bool ran = false;
  worker.Post([opened, &ran] {
    opened.wait();
    ran = true;
  });
  EXPECT_FALSE(worker.WaitIdle(SteadyClock::now() + milliseconds(5)));
  gate.set_value();
  EXPECT_TRUE(worker.WaitIdle(SteadyClock::now() + hours(1)));
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace arraybridge::daemon
