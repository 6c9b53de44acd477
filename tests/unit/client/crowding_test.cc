#include "client/crowding.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

using std::chrono::microseconds;

constexpr microseconds kShort{3};
constexpr microseconds kLong{3000};

// How many turns it rests.
uint32_t Rest(Crowding& crowding) {
  uint32_t turns = 0;
  while (crowding.Rest()) ++turns;
  return turns;
}

void Short(Crowding& crowding, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) crowding.Waited(kShort);
}

TEST(CrowdingTest, WhoWaitsLongNowAndThenYieldsOn) {
  Crowding crowding;
  for (int i = 0; i < 100; ++i) {
    crowding.Waited(kLong);
    EXPECT_EQ(Rest(crowding), 0u);
    Short(crowding, Crowding::kFew);
  }
}

TEST(CrowdingTest, WhoWaitsLongOftenRestsLongerAndLonger) {
  Crowding crowding;
  crowding.Waited(kLong);
  EXPECT_EQ(Rest(crowding), 0u);
  for (uint32_t rest = Crowding::kRestMin; rest < Crowding::kRestMax; rest *= 2) {
    Short(crowding, Crowding::kFew - 1);
    crowding.Waited(kLong);
    EXPECT_TRUE(crowding.rests());
    EXPECT_EQ(Rest(crowding), rest);
    EXPECT_FALSE(crowding.rests());
  }
  for (int i = 0; i < 3; ++i) {
    crowding.Waited(kLong);
    EXPECT_EQ(Rest(crowding), Crowding::kRestMax);
  }
}

TEST(CrowdingTest, WhereItHasBecomeCalmARestIsShortAgain) {
  Crowding crowding;
  for (int i = 0; i < 10; ++i) crowding.Waited(kLong), Rest(crowding);
  Short(crowding, 64 * Crowding::kFew);
  crowding.Waited(kLong);
  EXPECT_EQ(Rest(crowding), 0u);
  crowding.Waited(kLong);
  EXPECT_EQ(Rest(crowding), Crowding::kRestMin);
}

}  // namespace
}  // namespace arraybridge
