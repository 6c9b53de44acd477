// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/host/warm_backend.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/memory/host/host_backend.h"
#include "tests/unit/memory/host.h"

namespace arraybridge::daemon {
namespace {

class WarmBackendTest : public testing::Test {
 protected:
  void Make(uint64_t capacity, const WarmBackendOptions& options) {
    inner_ = MakeHostBackend({.capacity_bytes = capacity, .huge_pages = false});
    warm_ = std::make_unique<WarmBackend>(*inner_, options);
  }
  uint64_t cached() const { return warm_->usage(kHost).cached_bytes; }
  uint64_t allocated() const { return warm_->usage(kHost).allocated_bytes; }

  std::unique_ptr<MemoryBackend> inner_;
  std::unique_ptr<WarmBackend> warm_;
};

TEST_F(WarmBackendTest, StartsWithOneSmallBlockAndOneLargeIfAsked) {
  Make(256 * kMiB, {.cache_bytes = 128 * kMiB});
  EXPECT_EQ(cached(), 0u);
  EXPECT_EQ(warm_->Refill(), 2 * kMiB);
  EXPECT_EQ(cached(), 2 * kMiB);
  EXPECT_EQ(allocated(), 2 * kMiB);
  Make(256 * kMiB, {.cache_bytes = 128 * kMiB, .large_at_start = true});
  EXPECT_EQ(warm_->Refill(), 66 * kMiB);
  EXPECT_EQ(warm_->Refill(), 0u);
}

TEST_F(WarmBackendTest, HandsOutACachedBlockOfTheSameFootprint) {
  Make(64 * kMiB, {.cache_bytes = 16 * kMiB});
  warm_->Refill();
  const auto block = warm_->Allocate(kHost, 2 * kMiB - 1);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(cached(), 0u);
  EXPECT_EQ(allocated(), 2 * kMiB);  // no second block was created
  const auto other = warm_->Allocate(kHost, kMiB);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)->size(), kMiB);
}

TEST_F(WarmBackendTest, KeepsRecentlyRequestedSizesWithinTheLimit) {
  Make(64 * kMiB, {.cache_bytes = 6 * kMiB});
  ASSERT_TRUE(warm_->Allocate(kHost, 4 * kMiB).ok());
  EXPECT_EQ(warm_->Refill(), 6 * kMiB);  // 4, and the 2 from the start
  ASSERT_TRUE(warm_->Allocate(kHost, 5 * kMiB).ok());
  EXPECT_EQ(warm_->Refill(), 5 * kMiB);  // the latest first; no other size fits in addition
  EXPECT_EQ(cached(), 5 * kMiB);
  ASSERT_TRUE(warm_->Allocate(kHost, 7 * kMiB).ok());  // larger than the whole cache, so never kept
  EXPECT_EQ(warm_->Refill(), 0u);
  EXPECT_EQ(cached(), 5 * kMiB);
}

TEST_F(WarmBackendTest, KeepsNothingWithoutACache) {
  Make(64 * kMiB, {.cache_bytes = 0, .large_at_start = true});
  ASSERT_TRUE(warm_->Allocate(kHost, kMiB).ok());
  EXPECT_EQ(warm_->Refill(), 0u);
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(WarmBackendTest, TheCacheIsFreedBeforeARequestIsRefused) {
  Make(8 * kMiB, {.cache_bytes = 8 * kMiB});
  warm_->Refill();
  EXPECT_EQ(cached(), 2 * kMiB);
  const auto block = warm_->Allocate(kHost, 7 * kMiB);
  ASSERT_TRUE(block.ok()) << block.status().ToString();
  EXPECT_EQ(cached(), 0u);
  const auto refused = warm_->Allocate(kHost, 2 * kMiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().reason(), "DEVICE_FULL");
  EXPECT_EQ(warm_->Refill(), 0u);  // no room, which is not an error
}

TEST_F(WarmBackendTest, TrimFreesAllAndReturnsTheBytes) {
  Make(64 * kMiB, {.cache_bytes = 16 * kMiB});
  warm_->Refill();
  EXPECT_EQ(warm_->Trim(), 2 * kMiB);
  EXPECT_EQ(warm_->Trim(), 0u);
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(WarmBackendTest, RefusesOnlyImpossibleSizes) {
  Make(64 * kMiB, {.cache_bytes = 16 * kMiB});
  EXPECT_FALSE(warm_->Allocate(kHost, 0).ok());
  EXPECT_FALSE(warm_->Allocate(kHost, UINT64_MAX).ok());
  EXPECT_EQ(warm_->Refill(), 2 * kMiB);  // refused sizes are not remembered
}

// While one thread refills, a request for all available memory must still be served.
TEST_F(WarmBackendTest, ARefillDoesNotMakeAnAllocationFail) {
  Make(8 * kMiB, {.cache_bytes = 4 * kMiB});
  std::thread refiller([&] {
    for (int round = 0; round < 50; ++round) warm_->Refill();
  });
  for (int round = 0; round < 50; ++round) {
    const auto block = warm_->Allocate(kHost, 8 * kMiB);
    EXPECT_TRUE(block.ok()) << block.status().ToString();
  }
  refiller.join();
}

}  // namespace
}  // namespace arraybridge::daemon
