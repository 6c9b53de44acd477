// SPDX-License-Identifier: Apache-2.0
// A range of a written arena is given back at once, or only after the device has finished the queued copies.
#include "client/arenas/placement_range.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

class NoMapping final : public Mapping {
 public:
  std::byte* data() const override { return nullptr; }
  uint64_t size() const override { return 0; }
  Status CopyFrom(const View&, uint64_t) override { return Unimplemented("no memory"); }
  std::shared_ptr<DeviceEvent> Now() override { return nullptr; }
  void Detach() noexcept override {}
};

class RangeTest : public ::testing::TestWithParam<int32_t> {
 protected:
  RangeTest() {
    Handle handle;
    handle.device.type = GetParam();
    range_ = std::make_unique<Placement::Range>(
        nullptr, std::make_shared<WrittenArena>(handle, std::make_unique<NoMapping>(), false), 0, 256);
  }
  bool on_device() const { return GetParam() != kDeviceCpu; }

  std::unique_ptr<Placement::Range> range_;
};

TEST_P(RangeTest, WhatIsNotPublishedMayBeInUse) { EXPECT_EQ(range_->Waits(), on_device()); }

TEST_P(RangeTest, WhatIsPublishedAndWasOnlyCopiedIntoHasItsFence) {
  range_->published = true;
  EXPECT_FALSE(range_->Waits());
  range_->handed_out = true;
  EXPECT_EQ(range_->Waits(), on_device()) << "a framework may use it without our knowing";
}

// If the connection breaks before the answer, the range keeps the copies, because no fence tracks their sources.
TEST_P(RangeTest, WhatIsQueuedYetIsWaitedForWhateverTheBrokerSaid) {
  range_->published = true;
  range_->queued.push_back({0, nullptr});
  EXPECT_EQ(range_->Waits(), on_device());
}

TEST(PinnedRangeTest, GpusMayCopyFromItWhatWasHandedOut) {
  const auto made = [](bool pinned) {
    const auto arena = std::make_shared<WrittenArena>(Handle{}, std::make_unique<NoMapping>(), false, pinned);
    return std::make_unique<Placement::Range>(nullptr, arena, 0, 256);
  };
  std::atomic<bool> left{false};
  const auto pinned = made(true);
  pinned->published = true;
  pinned->left_direct = &left;
  EXPECT_FALSE(pinned->Waits());
  pinned->handed_out = true;
  EXPECT_TRUE(pinned->Waits());
  EXPECT_FALSE(pinned->ReleaseAtOnce()) << "the sender would use it again under a copy";
  EXPECT_FALSE(left);
  const auto ordinary = made(false);
  ordinary->left_direct = &left;
  ordinary->handed_out = true;
  EXPECT_FALSE(ordinary->Waits());
  EXPECT_TRUE(ordinary->ReleaseAtOnce());
  EXPECT_TRUE(left);
}

INSTANTIATE_TEST_SUITE_P(Devices, RangeTest, ::testing::Values(kDeviceCpu, kDeviceCuda));

}  // namespace
}  // namespace arraybridge
