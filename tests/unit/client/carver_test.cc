// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/carver.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <vector>

namespace arraybridge {
namespace {

TEST(CarverTest, GranulesAreWholeAndAtLeastOne) {
  EXPECT_EQ(Carver::Granules(0), 256u);
  EXPECT_EQ(Carver::Granules(1), 256u);
  EXPECT_EQ(Carver::Granules(256), 256u);
  EXPECT_EQ(Carver::Granules(257), 512u);
  EXPECT_EQ(Carver::Granules(std::numeric_limits<uint64_t>::max()), 0u);
  EXPECT_EQ(Carver::Granules(std::numeric_limits<uint64_t>::max() - 256), std::numeric_limits<uint64_t>::max() - 255);
}

TEST(CarverTest, TakesTheSmallestGapThatFits) {
  Carver carver(4096);
  const auto a = carver.Carve(1024);
  const auto b = carver.Carve(256);
  const auto c = carver.Carve(512);
  const auto d = carver.Carve(256);
  ASSERT_TRUE(a && b && c && d);
  carver.Release(*a, 1024);
  carver.Release(*c, 512);
  EXPECT_EQ(carver.BestGap(300), 512u);
  EXPECT_EQ(carver.Carve(512), c);
  EXPECT_EQ(carver.Carve(512), a);
}

TEST(CarverTest, WhatDoesNotFitIsRefused) {
  Carver carver(1000);  // three whole granules
  EXPECT_FALSE(carver.Carve(1024).has_value());
  EXPECT_TRUE(carver.Carve(768).has_value());
  EXPECT_FALSE(carver.Carve(256).has_value());
  EXPECT_FALSE(carver.BestGap(256).has_value());
}

// Compared with a model that marks every granule.
TEST(CarverTest, RandomUseNeitherOverlapsNorLosesAGranule) {
  constexpr uint64_t kGranules = 4096;
  std::mt19937_64 random(7);
  Carver carver(kGranules * 256);
  std::vector<bool> taken(kGranules, false);
  std::map<uint64_t, uint64_t> ranges;
  for (int round = 0; round < 20000; ++round) {
    if (random() % 2 == 0) {
      const uint64_t bytes = Carver::Granules(random() % (1 << (8 + random() % 8)));
      const auto offset = carver.Carve(bytes);
      if (!offset) continue;
      ASSERT_EQ(*offset % 256, 0u);
      ASSERT_LE(*offset + bytes, kGranules * 256);
      for (uint64_t i = *offset / 256; i < (*offset + bytes) / 256; ++i) {
        ASSERT_FALSE(taken[i]);
        taken[i] = true;
      }
      ranges[*offset] = bytes;
    } else if (!ranges.empty()) {
      auto at = ranges.lower_bound(random() % (kGranules * 256));
      if (at == ranges.end()) at = ranges.begin();
      carver.Release(at->first, at->second);
      for (uint64_t i = at->first / 256; i < (at->first + at->second) / 256; ++i) taken[i] = false;
      ranges.erase(at);
    }
  }
  EXPECT_FALSE(carver.empty());
  for (const auto& [offset, bytes] : ranges) carver.Release(offset, bytes);
  EXPECT_TRUE(carver.empty());
  EXPECT_EQ(carver.Carve(kGranules * 256), 0u) << "all gaps have become one again";
}

}  // namespace
}  // namespace arraybridge
