// SPDX-License-Identifier: Apache-2.0
// The arenas that a session writes: where a range is carved, and which range contains an address.
#include "client/arenas/arena.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "client/arenas/placement_range.h"
#include "tests/unit/client/static_mapping.h"

namespace arraybridge {
namespace {

constexpr uint64_t kLarge = 16 * 1024;
constexpr uint64_t kGranule = 256;

class WrittenArenasTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 4 * kGranule;

  std::shared_ptr<WrittenArena> Arena(uint64_t id, std::byte* data, bool own = false, uint64_t size = kArena) {
    Handle handle;
    handle.arena = id;
    handle.arena_size = size;
    return std::make_shared<WrittenArena>(handle, std::make_unique<MappingAt>(data, size), own);
  }
  std::shared_ptr<Placement::Range> Named(const WrittenArenas::Carving& carving) {
    auto range = std::make_shared<Placement::Range>(nullptr, carving.arena, carving.offset, kGranule);
    arenas_.Name(carving, range);
    return range;
  }
  std::shared_ptr<Placement::Range> Find(const std::byte* data, uint64_t bytes = 1) const {
    return arenas_.Find({}, data, bytes);
  }

  std::array<std::byte, 8 * kArena> memory_{};
  WrittenArenas arenas_{kLarge};
};

TEST_F(WrittenArenasTest, FindsTheRangeAmongManyArenas) {
  std::vector<std::shared_ptr<Placement::Range>> ranges;
  for (const uint64_t id : {5, 0, 3, 7, 1}) {
    ranges.push_back(Named(arenas_.Add(Arena(id + 1, &memory_[id * kArena]), kGranule)));
    EXPECT_EQ(Find(&memory_[id * kArena], kGranule), ranges.back());
  }
  for (const auto& range : ranges) {
    EXPECT_EQ(Find(range->arena->data() + kGranule - 1), range);
    EXPECT_EQ(Find(range->arena->data() + kGranule - 1, 2), nullptr) << "beyond the range";
    EXPECT_EQ(Find(range->arena->data() + kGranule), nullptr) << "not carved";
  }
  EXPECT_EQ(Find(&memory_[2 * kArena]), nullptr) << "between two arenas";
  EXPECT_EQ(arenas_.Find({.type = kDeviceCuda, .id = 0, .uuid = {}}, memory_.data(), 1), nullptr);
}

TEST_F(WrittenArenasTest, OfAnArenaOfItsOwnRangesAreCarvedByItsNameAlone) {
  const auto own = Arena(1, &memory_[0], true);
  const auto anchor = arenas_.Add(own, kGranule);
  EXPECT_EQ(arenas_.Carve({}, kGranule), std::nullopt);
  const auto carving = arenas_.CarveIn(*own, 2 * kGranule);
  ASSERT_TRUE(carving.has_value());
  EXPECT_EQ(carving->offset, kGranule);
  EXPECT_EQ(arenas_.CarveIn(*own, 2 * kGranule), std::nullopt) << "no room";
  arenas_.ReleaseLocal(*own, carving->offset);
  EXPECT_TRUE(arenas_.CarveIn(*own, 3 * kGranule).has_value());
  arenas_.Forget(*own);
  EXPECT_EQ(arenas_.CarveIn(*own, kGranule), std::nullopt) << "it was given back";
}

TEST_F(WrittenArenasTest, AnAddressThatWasUnmappedIsTheNextArenas) {
  const auto sealed = Arena(1, &memory_[kGranule], true);
  const auto before = Named(arenas_.Add(sealed, kGranule));
  EXPECT_EQ(Find(&memory_[kGranule]), before);
  arenas_.Unmap(*sealed);
  EXPECT_EQ(Find(&memory_[kGranule]), nullptr);
  const auto after = Named(arenas_.Add(Arena(2, memory_.data()), kGranule));
  const auto inside = Named(*arenas_.Carve({}, kGranule));
  EXPECT_EQ(Find(memory_.data()), after);
  EXPECT_EQ(Find(&memory_[kGranule]), inside);
  arenas_.Forget(*sealed);
  EXPECT_EQ(Find(&memory_[kGranule]), inside);
  arenas_.ReleaseLocal(*inside->arena, inside->offset);
  EXPECT_EQ(Find(memory_.data()), after);
  arenas_.ReleaseLocal(*after->arena, after->offset);
  EXPECT_EQ(arenas_.TakeEmpty(WrittenArenas::Instant::max()), std::vector<uint64_t>{2});
  EXPECT_EQ(Find(memory_.data()), nullptr);
  EXPECT_EQ(arenas_.Carve({}, kGranule), std::nullopt);
}

TEST_F(WrittenArenasTest, SmallRangesAreCarvedFromArenasOfSmallOnesOnly) {
  arenas_.Add(Arena(1, memory_.data(), false, 2 * kLarge), kLarge);
  EXPECT_EQ(arenas_.Carve({}, kGranule), std::nullopt) << "it would pin a large arena";
  arenas_.Add(Arena(2, memory_.data(), true), kGranule);
  EXPECT_EQ(arenas_.Carve({}, kGranule), std::nullopt) << "an arena of its own is one share's";
  EXPECT_EQ(arenas_.NextSize({}, kGranule, false), uint64_t{2} << 20);
  arenas_.Add(Arena(3, memory_.data()), kGranule);
  EXPECT_EQ(arenas_.Carve({}, kGranule)->arena->id, 3u);
  EXPECT_EQ(arenas_.Carve({}, kLarge)->arena->id, 1u);
  EXPECT_EQ(arenas_.NextSize({}, kGranule, false), uint64_t{4} << 20);
}

TEST_F(WrittenArenasTest, AnArenaWithAKnownNumberReplacesTheOther) {
  arenas_.Add(Arena(1, memory_.data()), kGranule);
  const auto after = Named(arenas_.Add(Arena(1, &memory_[kArena]), kGranule));
  EXPECT_EQ(arenas_.count(), 1u);
  EXPECT_EQ(Find(&memory_[kArena]), after);
  EXPECT_EQ(Find(memory_.data()), nullptr);
  EXPECT_EQ(arenas_.Carve({}, kGranule)->arena, after->arena);
}

}  // namespace
}  // namespace arraybridge
