// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "daemon/service/reclaim/worker.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Watchdog::Loop On(Worker& worker) {
  return [&worker](std::function<void()> task) { worker.Post(std::move(task)); };
}

TEST(WatchdogTest, TellsForAsLongAsEveryLoopAnswers) {
  Worker one("one");
  Worker other("other");
  std::atomic<int> told{0};
  const Watchdog watchdog(milliseconds(4), {On(one), On(other)}, [&told] { ++told; });
  while (told < 3) std::this_thread::yield();

  std::promise<void> stuck;
  std::promise<void> release;
  other.Post([&] {
    stuck.set_value();
    release.get_future().wait();
  });
  stuck.get_future().wait();
  // A callback of a round that was answered before may still run; no other may.
  const int before = told;
  one.Post([] {});
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_LE(told, before + 1);

  release.set_value();
  const int stopped_at = told;
  while (told < stopped_at + 3) std::this_thread::yield();
}

TEST(WatchdogTest, ALoopThatNeverAnswersDoesNotKeepItFromEnding) {
  std::vector<std::function<void()>> kept;
  {
    const Watchdog watchdog(milliseconds(4), {[&kept](std::function<void()> task) { kept.push_back(std::move(task)); }},
                            [] { ADD_FAILURE() << "no thread answered"; });
  }
  for (const auto& task : kept) task();  // late, without effect
}

TEST(WatchdogTest, IsWantedByTheManagerAlone) {
  ::unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(Watchdog::Wanted(), std::nullopt);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(Watchdog::Wanted(), microseconds(30000000));
  ::setenv("WATCHDOG_PID", std::to_string(::getpid() + 1).c_str(), 1);
  EXPECT_EQ(Watchdog::Wanted(), std::nullopt);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(Watchdog::Wanted(), std::nullopt);
}

}  // namespace
}  // namespace arraybridge::daemon
