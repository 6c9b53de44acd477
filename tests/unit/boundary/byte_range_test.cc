// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/byte_range.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

TEST(ByteRangeTest, ContainsWhatLiesBetweenItsEnds) {
  constexpr ByteRange range{100, 50};
  EXPECT_TRUE(range.Contains({100, 50}));
  EXPECT_TRUE(range.Contains({110, 40}));
  EXPECT_TRUE(range.Contains({150, 0}));
  EXPECT_FALSE(range.Contains({99, 1}));
  EXPECT_FALSE(range.Contains({99, 51}));
  EXPECT_FALSE(range.Contains({100, 51}));
  EXPECT_FALSE(range.Contains({149, 2}));
  EXPECT_FALSE(range.Contains({151, 0}));
}

TEST(ByteRangeTest, SumsThatOverflowAreOutside) {
  constexpr ByteRange range{4096, 8192};
  EXPECT_FALSE(range.Contains({4096, UINT64_MAX}));
  EXPECT_FALSE(range.Contains({8192, UINT64_MAX - 4096}));
  EXPECT_FALSE(range.Contains({UINT64_MAX, 4097}));
  constexpr ByteRange last{UINT64_MAX - 10, 10};
  EXPECT_TRUE(last.Contains({UINT64_MAX - 1, 1}));
  EXPECT_FALSE(last.Contains({UINT64_MAX - 1, 2}));
}

}  // namespace
}  // namespace arraybridge
