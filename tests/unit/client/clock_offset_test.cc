// SPDX-License-Identifier: Apache-2.0
#include "client/process/clock_offset.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

using std::chrono::milliseconds;

TEST(ClockOffsetTest, OneClockIsNotAheadHoweverLongTheAnswerTook) {
  ClockOffset offset;
  offset.Note(1000, 1000, 1000);
  EXPECT_EQ(offset.ahead(), milliseconds(0));
  ClockOffset slow;
  slow.Note(1000, 1001, 61000);
  EXPECT_FALSE(slow.is_close());
  EXPECT_EQ(slow.ahead(), milliseconds(0));
}

TEST(ClockOffsetTest, AnotherClockIsKnownFromACloseReadingAlone) {
  ClockOffset offset;
  offset.Note(1000, 901001, 61000);
  EXPECT_EQ(offset.ahead(), std::nullopt) << "840 to 900 s";
  offset.Note(61000, 961001, 61002);
  EXPECT_TRUE(offset.is_close());
  EXPECT_EQ(offset.ahead(), milliseconds(899999)) << "rather too small";
}

TEST(ClockOffsetTest, TwoReadingsTellMoreThanEachOfThem) {
  ClockOffset offset;
  offset.Note(0, 5015, 1000);     // 4015 to 5015
  offset.Note(1000, 6999, 2000);  // 4999 to 5999
  EXPECT_EQ(offset.ahead(), milliseconds(4999));
}

TEST(ClockOffsetTest, ASmallOffsetIsNotTakenForNoneOnceAReadingIsClose) {
  ClockOffset offset;
  offset.Note(0, 6000, 10000);  // -4000 to 6000
  EXPECT_FALSE(offset.is_close());
  offset.Note(10000, 15001, 10002);
  EXPECT_EQ(offset.ahead(), milliseconds(4999));
}

}  // namespace
}  // namespace arraybridge
