// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/log_throttle.h"

#include <gtest/gtest.h>

namespace arraybridge::daemon {
namespace {

TEST(LogThrottleTest, LetsSoManyLinesASecondThroughAndSaysHowManyItDropped) {
  LogThrottle throttle;
  const LogThrottle::TimePoint start = std::chrono::steady_clock::now();
  EXPECT_EQ(throttle.Admit(start, 2), 0u);
  EXPECT_EQ(throttle.Admit(start, 2), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(throttle.Admit(start + std::chrono::milliseconds(999), 2), std::nullopt);
  EXPECT_EQ(throttle.Admit(start + std::chrono::seconds(1), 2), 5u);
  EXPECT_EQ(throttle.Admit(start + std::chrono::seconds(1), 2), 0u) << "reported once";
  EXPECT_EQ(throttle.Admit(start + std::chrono::seconds(1), 2), std::nullopt);
}

TEST(LogThrottleTest, AnotherNumberHoldsFromTheNextLineOn) {
  LogThrottle throttle;
  const LogThrottle::TimePoint start = std::chrono::steady_clock::now();
  EXPECT_EQ(throttle.Admit(start, 1), 0u);
  EXPECT_EQ(throttle.Admit(start, 1), std::nullopt);
  EXPECT_EQ(throttle.Admit(start, 2), 1u) << "one of the two lines was used";
  EXPECT_EQ(throttle.Admit(start, 2), std::nullopt);
}

}  // namespace
}  // namespace arraybridge::daemon
