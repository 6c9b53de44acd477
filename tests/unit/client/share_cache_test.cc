// SPDX-License-Identifier: Apache-2.0
// The cache of known shares: by description and by id, and its bounds.
#include "client/catalogue/share_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace arraybridge {
namespace {

constexpr size_t kShort = 100, kLong = 5000, kTooLong = 65537;

std::shared_ptr<const KnownShare> KnownOf(uint64_t id, size_t description_bytes) {
  auto known = std::make_shared<KnownShare>();
  known->description = std::string(description_bytes, static_cast<char>('a' + id % 26));
  known->share.id = id;
  return known;
}

TEST(ShareCacheTest, ShortDescriptionIsFoundByItselfAndById) {
  ShareCache cache;
  EXPECT_EQ(cache.Find(uint64_t{3}), nullptr);
  const auto known = KnownOf(3, kShort);
  cache.Add(known);
  EXPECT_EQ(cache.Find(uint64_t{3}), known);
  EXPECT_EQ(cache.Find(known->description), known);
  EXPECT_EQ(cache.Find(uint64_t{4}), nullptr);
}

TEST(ShareCacheTest, LongDescriptionIsFoundToo) {
  ShareCache cache;
  const auto known = KnownOf(1000, kLong), short_one = KnownOf(1001, kShort);
  cache.Add(known);
  cache.Add(short_one);
  EXPECT_EQ(cache.Find(uint64_t{1000}), known);
  EXPECT_EQ(cache.Find(uint64_t{1001}), short_one);
  EXPECT_EQ(cache.Find(known->description), known);
}

TEST(ShareCacheTest, FewLongDescriptionsAreKept) {
  ShareCache cache;
  for (uint64_t id = 100; id < 200; ++id) cache.Add(KnownOf(id, kLong));
  int kept = 0;
  for (uint64_t id = 100; id < 200; ++id) kept += cache.Find(id) != nullptr;
  EXPECT_EQ(kept, 16);
  EXPECT_NE(cache.Find(uint64_t{199}), nullptr);
}

TEST(ShareCacheTest, DescriptionAboveTheMaximumIsNotKept) {
  ShareCache cache;
  cache.Add(KnownOf(7, kTooLong));
  EXPECT_EQ(cache.Find(uint64_t{7}), nullptr);
  cache.Add(KnownOf(7, kTooLong - 1));
  EXPECT_NE(cache.Find(uint64_t{7}), nullptr);
}

}  // namespace
}  // namespace arraybridge
