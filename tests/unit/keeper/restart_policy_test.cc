// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/restart_policy.h"

#include <gtest/gtest.h>

namespace arraybridge::daemon {
namespace {

using Time = RestartPolicy::Time;

constexpr Time kShort{9'999};
constexpr Time kLong{10'000};

TEST(RestartPolicyTest, FiveShortLivesInARowDelayTheNextStartAndTwentyEndTheStarts) {
  RestartPolicy policy(kLong, Time(100));
  for (int life = 1; life <= 4; ++life) EXPECT_EQ(policy.DelayAfter(kShort), Time(0)) << life;
  for (const int delay : {100, 200, 400, 800, 1600, 3200, 6400, 10'000, 10'000}) {
    EXPECT_EQ(policy.DelayAfter(kShort), Time(delay));
  }
  for (int life = 14; life <= 19; ++life) EXPECT_EQ(policy.DelayAfter(kShort), Time(10'000)) << life;
  EXPECT_EQ(policy.DelayAfter(kShort), std::nullopt);
  EXPECT_EQ(policy.DelayAfter(kShort), std::nullopt);
}

TEST(RestartPolicyTest, ALongLifeIsForgiven) {
  RestartPolicy policy(kLong, Time(100));
  for (int life = 0; life < 19; ++life) policy.DelayAfter(kShort);
  EXPECT_EQ(policy.DelayAfter(kLong), Time(0));
  for (int life = 1; life <= 4; ++life) EXPECT_EQ(policy.DelayAfter(kShort), Time(0)) << life;
  EXPECT_EQ(policy.DelayAfter(kShort), Time(100));
}

TEST(RestartPolicyTest, AfterForgiveDaemonsAreStartedAgain) {
  RestartPolicy policy(kLong, Time(100));
  for (int life = 0; life < 20; ++life) policy.DelayAfter(kShort);
  policy.Forgive();
  EXPECT_EQ(policy.DelayAfter(kShort), Time(0));
}

TEST(RestartPolicyTest, WithoutAShortLifeEveryDaemonIsStartedAtOnce) {
  RestartPolicy policy(Time(0), Time(100));
  for (int life = 0; life < 1000; ++life) ASSERT_EQ(policy.DelayAfter(Time(0)), Time(0));
}

}  // namespace
}  // namespace arraybridge::daemon
