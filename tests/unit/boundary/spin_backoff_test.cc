// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/spin_backoff.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace arraybridge {
namespace {

using std::chrono::microseconds;

constexpr microseconds kShort{3};
constexpr microseconds kLong{3000};

// The number of turns for which it backs off.
uint32_t Skip(SpinBackoff& backoff) {
  uint32_t turns = 0;
  while (backoff.SkipTurn()) ++turns;
  return turns;
}

void Short(SpinBackoff& backoff, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) backoff.Waited(kShort);
}

TEST(SpinBackoffTest, AnOccasionalLongWaitDoesNotCauseABackOff) {
  SpinBackoff backoff;
  for (int i = 0; i < 100; ++i) {
    backoff.Waited(kLong);
    EXPECT_EQ(Skip(backoff), 0u);
    Short(backoff, SpinBackoff::kFew);
  }
}

TEST(SpinBackoffTest, ConsecutiveLongWaitsCauseLongerBackOffs) {
  SpinBackoff backoff;
  backoff.Waited(kLong);
  EXPECT_EQ(Skip(backoff), 0u);
  for (uint32_t turns = SpinBackoff::kTurnsMin; turns < SpinBackoff::kTurnsMax; turns *= 2) {
    Short(backoff, SpinBackoff::kFew - 1);
    backoff.Waited(kLong);
    EXPECT_TRUE(backoff.backed_off());
    EXPECT_EQ(Skip(backoff), turns);
    EXPECT_FALSE(backoff.backed_off());
  }
  for (int i = 0; i < 3; ++i) {
    backoff.Waited(kLong);
    EXPECT_EQ(Skip(backoff), SpinBackoff::kTurnsMax);
  }
}

TEST(SpinBackoffTest, TwoLongWaitsNowAndThenCauseNoLongerBackOffs) {
  SpinBackoff backoff;
  for (int i = 0; i < 100; ++i) {
    backoff.Waited(kLong);
    backoff.Waited(kLong);
    EXPECT_EQ(Skip(backoff), SpinBackoff::kTurnsMin);
    Short(backoff, SpinBackoff::kFew);
  }
}

TEST(SpinBackoffTest, ALongBackOffIsForgottenAfterAsManyShortWaits) {
  SpinBackoff backoff;
  uint32_t last = 0;
  while (last < 8 * SpinBackoff::kFew) backoff.Waited(kLong), last = std::max(last, Skip(backoff));
  Short(backoff, last - 1);
  backoff.Waited(kLong);
  backoff.Waited(kLong);
  EXPECT_EQ(Skip(backoff), 2 * last) << "too few";
  Short(backoff, 2 * last);
  backoff.Waited(kLong);
  backoff.Waited(kLong);
  EXPECT_EQ(Skip(backoff), SpinBackoff::kTurnsMin);
}

TEST(SpinBackoffTest, AfterManyShortWaitsTheNextBackOffIsShort) {
  SpinBackoff backoff;
  for (int i = 0; i < 10; ++i) backoff.Waited(kLong), Skip(backoff);
  Short(backoff, 64 * SpinBackoff::kFew);
  backoff.Waited(kLong);
  EXPECT_EQ(Skip(backoff), 0u);
  backoff.Waited(kLong);
  EXPECT_EQ(Skip(backoff), SpinBackoff::kTurnsMin);
}

}  // namespace
}  // namespace arraybridge
