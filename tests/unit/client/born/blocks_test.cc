// SPDX-License-Identifier: Apache-2.0
// The blocks of a BornHeap: which one an allocation takes, how many freed ones are kept, and which die.
#include "client/born/blocks.h"

#include <gtest/gtest.h>

#include <vector>

#include "client/arenas/arena.h"
#include "client/born/mapping.h"
#include "tests/unit/client/static_mapping.h"

namespace arraybridge {
namespace {

constexpr uint64_t kBlockPage = 4096;

class BornBlocksTest : public ::testing::Test {
 protected:
  BornBlocksTest() {
    Handle handle;
    handle.arena_size = memory_.size();
    auto mapping =
        std::make_unique<BornMapping>(std::make_unique<MappingAt>(memory_.data(), memory_.size()), UniqueFd());
    mapping_ = mapping.get();
    arena_ = std::make_shared<WrittenArena>(handle, std::move(mapping), true);
  }
  std::byte* Lend(uint64_t pages) {
    auto range = std::make_shared<Placement::Range>(nullptr, arena_, used_, pages * kBlockPage);
    used_ += pages * kBlockPage;
    return blocks_.Add(std::move(range));
  }
  void Return(std::byte* data) { EXPECT_TRUE(blocks_.Return(data, dead_)); }

  std::vector<std::byte> memory_ = std::vector<std::byte>(256 * kBlockPage);
  BornMapping* mapping_ = nullptr;
  std::shared_ptr<WrittenArena> arena_;
  uint64_t used_ = 0;
  BornBlocks blocks_{8 * kBlockPage};
  BornBlocks::Dead dead_;
};

TEST_F(BornBlocksTest, TheLatestFreedBlockOfThisSizeIsTaken) {
  std::byte* const first = Lend(1);
  std::byte* const second = Lend(1);
  std::byte* const larger = Lend(2);
  for (std::byte* const each : {first, second, larger}) Return(each);
  EXPECT_EQ(blocks_.TakeRecent(kBlockPage), second);
  EXPECT_EQ(blocks_.TakeRecent(kBlockPage), first);
  EXPECT_EQ(blocks_.TakeRecent(kBlockPage), nullptr) << "a larger one is not cut";
  EXPECT_EQ(blocks_.TakeRecent(2 * kBlockPage), larger);
  EXPECT_EQ(blocks_.lent_bytes(), 4 * kBlockPage);
  EXPECT_EQ(blocks_.recent_bytes(), 0);
}

TEST_F(BornBlocksTest, FreedBlocksAreKeptWithinTheirBound) {
  for (std::byte* const each : {Lend(3), Lend(4), Lend(2)}) Return(each);
  EXPECT_EQ(blocks_.recent_bytes(), 6 * kBlockPage) << "the oldest has died";
  ASSERT_EQ(dead_.size(), 1);
  EXPECT_EQ(dead_[0]->size, 3 * kBlockPage);
  Return(Lend(20));
  EXPECT_EQ(blocks_.recent_bytes(), 20 * kBlockPage) << "the latest is kept whatever its size";
  EXPECT_EQ(dead_.size(), 3);
  blocks_.TakeAllRecent(arena_.get(), dead_);
  EXPECT_EQ(blocks_.recent_bytes(), 0);
}

TEST_F(BornBlocksTest, SixtyFourFreedBlocksAreKeptAtMost) {
  BornBlocks many(1 << 30);
  std::vector<std::byte*> lent;
  for (uint64_t i = 0; i < 70; ++i) {
    lent.push_back(many.Add(std::make_shared<Placement::Range>(nullptr, arena_, i * kBlockPage, kBlockPage)));
  }
  for (std::byte* const each : lent) EXPECT_TRUE(many.Return(each, dead_));
  EXPECT_EQ(dead_.size(), 6);
  EXPECT_EQ(many.recent_bytes(), 64 * kBlockPage);
}

TEST_F(BornBlocksTest, WhatReadersMayHaveIsNotLentAgain) {
  const auto published = std::make_shared<Placement::Range>(nullptr, arena_, 0, kBlockPage);
  const auto being_put = std::make_shared<Placement::Range>(nullptr, arena_, kBlockPage, kBlockPage);
  published->published = true;
  Return(blocks_.Add(published));
  Return(blocks_.Add(being_put));  // this test has a reference, as a put has
  EXPECT_EQ(dead_.size(), 2);
  EXPECT_EQ(blocks_.TakeRecent(kBlockPage), nullptr);
}

TEST_F(BornBlocksTest, BlocksOfAnAbandonedArenaAreNotKept) {
  std::byte* const block = Lend(1);
  mapping_->Abandon();
  Return(block);
  EXPECT_EQ(dead_.size(), 1);
  EXPECT_EQ(blocks_.recent_bytes(), 0);
}

// Without a descriptor of the file its pages cannot be separated, and what is written still reaches readers.
TEST_F(BornBlocksTest, AnArenaThatCannotBeSeparatedStaysAsItIs) {
  Lend(1);
  blocks_.MakeLentPrivate();
  EXPECT_FALSE(mapping_->is_private());
  EXPECT_FALSE(blocks_.Find(memory_.data())->published);
}

TEST_F(BornBlocksTest, OnlyLentBlocksAreFound) {
  std::byte* const block = Lend(2);
  EXPECT_EQ(blocks_.Find(block)->size, 2 * kBlockPage);
  EXPECT_EQ(blocks_.Find(block + kBlockPage), nullptr) << "not the block's address";
  Return(block);
  EXPECT_EQ(blocks_.Find(block), nullptr);
  EXPECT_FALSE(blocks_.Return(block, dead_)) << "freed twice";
}

}  // namespace
}  // namespace arraybridge
