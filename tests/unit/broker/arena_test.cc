// SPDX-License-Identifier: Apache-2.0
// How an arena validates the ranges that a client publishes.
#include "daemon/broker/objects/arena.h"

#include <gtest/gtest.h>

#include "daemon/broker/objects/share.h"
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

class ArenaTest : public testing::Test {
 protected:
  ArenaTest()
      : arena_(ArenaId{7}, 99, nullptr, nullptr, *Charge::Of(quota_, kPage),
               std::shared_ptr<MemoryBlock>(*backend_.Allocate({}, kPage)), Device{}, HandleKind::kMemfd) {}
  void Carve(uint64_t offset, uint64_t size) {
    shares_.push_back(std::make_unique<Share>());
    shares_.back()->size = size;
    arena_.Carve(offset, shares_.back().get());
  }

  FakeBackend backend_{kCapacity};
  std::shared_ptr<Quota> quota_ = std::make_shared<Quota>(kCapacity);
  std::vector<std::unique_ptr<Share>> shares_;
  Arena arena_;
};

TEST_F(ArenaTest, TakesWhatIsInside) {
  EXPECT_TRUE(arena_.CheckRange(0, kPage).ok());
  EXPECT_TRUE(arena_.CheckRange(kPage - 256, 256).ok());
  EXPECT_TRUE(arena_.CheckRange(256, 1).ok());
}

TEST_F(ArenaTest, RefusesWhatIsOutsideAlsoWhenItWouldWrap) {
  EXPECT_THAT(arena_.CheckRange(0, kPage + 1), FailsWith(Code::kInvalidArgument, "OUT_OF_BOUNDS"));
  EXPECT_THAT(arena_.CheckRange(kPage, 1), FailsWith(Code::kInvalidArgument, "OUT_OF_BOUNDS"));
  EXPECT_THAT(arena_.CheckRange(256, UINT64_MAX), FailsWith(Code::kInvalidArgument, "OUT_OF_BOUNDS"));
  EXPECT_THAT(arena_.CheckRange(UINT64_MAX - 255, 256), FailsWith(Code::kInvalidArgument, "OUT_OF_BOUNDS"));
  EXPECT_THAT(arena_.CheckRange(128, 1), FailsWith(Code::kInvalidArgument, "UNALIGNED"));
  EXPECT_EQ(arena_.CheckRange(0, 0).code(), Code::kInvalidArgument);
}

TEST_F(ArenaTest, RefusesEveryWayToOverlap) {
  Carve(1024, 300);
  for (const auto& [offset, size] : {std::pair{1024, 300}, {768, 257}, {1280, 1}, {1024, 1}, {0, 4096}}) {
    EXPECT_THAT(arena_.CheckRange(offset, size), FailsWith(Code::kFailedPrecondition, "OVERLAP")) << offset;
  }
  EXPECT_TRUE(arena_.CheckRange(768, 256).ok());
  EXPECT_TRUE(arena_.CheckRange(1536, 256).ok());
  arena_.Free(1024);
  EXPECT_TRUE(arena_.CheckRange(0, 4096).ok());
  EXPECT_TRUE(arena_.empty());
}

TEST(ChargeTest, IsReturnedOnceHoweverItMoves) {
  auto quota = std::make_shared<Quota>(100);
  {
    auto first = Charge::Of(quota, 60);
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(Charge::Of(quota, 41).has_value());
    EXPECT_FALSE(Charge::Of(quota, UINT64_MAX).has_value());
    const Charge moved = *std::move(first);
    first.reset();
    EXPECT_EQ(quota->used(), 60u);
    EXPECT_TRUE(Charge::Of(quota, 40).has_value());
    EXPECT_EQ(quota->used(), 60u);
  }
  EXPECT_EQ(quota->used(), 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
