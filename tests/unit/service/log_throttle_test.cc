#include "daemon/service/log_throttle.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

TEST(LogThrottleTest, LetsSoManyLinesASecondThroughAndSaysHowManyItDropped) {
  LogThrottle throttle(2);
  const LogThrottle::TimePoint start = std::chrono::steady_clock::now();
  EXPECT_EQ(throttle.Admit(start), 0u);
  EXPECT_EQ(throttle.Admit(start), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(throttle.Admit(start + std::chrono::milliseconds(999)), std::nullopt);
  EXPECT_EQ(throttle.Admit(start + std::chrono::seconds(1)), 5u);
  EXPECT_EQ(throttle.Admit(start + std::chrono::seconds(1)), 0u) << "told once";
  EXPECT_EQ(throttle.Admit(start + std::chrono::seconds(1)), std::nullopt);
}

}  // namespace
}  // namespace arraybridge
