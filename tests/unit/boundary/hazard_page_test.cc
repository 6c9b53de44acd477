// SPDX-License-Identifier: Apache-2.0
// The broker finds every hold on a hazard page, at every index, and nothing else.
#include "proto/boundary/layouts/hazard.h"

#include <gtest/gtest.h>

#include <memory>

namespace arraybridge::hazard {
namespace {

constexpr uint64_t kHold = WordOf(7, 9);

TEST(HazardPageTest, AHoldIsFoundAtEveryIndex) {
  for (uint32_t index = 0; index < kWords; ++index) {
    const auto page = std::make_unique<Page>();
    page->words[index] = kHold;
    page->high = index + 1;
    EXPECT_TRUE(Has(*page, kHold)) << index;
    page->high = kWords + 1000;  // an impossible value is limited to the page
    EXPECT_TRUE(Has(*page, kHold)) << index;
  }
}

TEST(HazardPageTest, AWordThatDiffersInOneBitIsNotTheHold) {
  const auto page = std::make_unique<Page>();
  page->high = kWords;
  for (uint32_t bit = 0; bit < 64; ++bit) {
    page->words.fill(kHold ^ uint64_t{1} << bit);
    EXPECT_FALSE(Has(*page, kHold)) << bit;
    page->words[2 * bit] = kHold;
    EXPECT_TRUE(Has(*page, kHold)) << bit;
  }
}

TEST(HazardPageTest, AWordThatDiffersInManyBitsIsNotTheHold) {
  const auto page = std::make_unique<Page>();
  page->high = kWords;
  for (uint32_t shift = 0; shift < 64; ++shift) {
    page->words.fill(kHold ^ ~uint64_t{0} << shift);
    EXPECT_FALSE(Has(*page, kHold)) << shift;
    page->words.fill(kHold ^ ~uint64_t{0} >> shift);
    EXPECT_FALSE(Has(*page, kHold)) << shift;
  }
}

TEST(HazardPageTest, HalvesOfTwoWordsAreNotAHold) {
  const auto page = std::make_unique<Page>();
  page->high = 2;
  page->words[0] = kHold << 32;
  page->words[1] = kHold >> 32;
  EXPECT_FALSE(Has(*page, kHold));
  page->words[0] = kHold & 0xffffffff;
  page->words[1] = kHold & ~uint64_t{0xffffffff};
  EXPECT_FALSE(Has(*page, kHold));
}

TEST(HazardPageTest, AnEmptyPageHoldsNothing) {
  const auto page = std::make_unique<Page>();
  EXPECT_FALSE(Has(*page, kHold));
  page->high = kWords;
  EXPECT_FALSE(Has(*page, kHold));
}

}  // namespace
}  // namespace arraybridge::hazard
