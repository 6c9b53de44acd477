// SPDX-License-Identifier: Apache-2.0
// The queue of a direct channel, whose number of slots is the capacity of its channel.
#include "proto/boundary/layouts/direct_channel.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace arraybridge {
namespace {

using direct_channel::Entry;
using direct_channel::Format;

class DirectChannelQueueTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  uint64_t capacity() const { return GetParam(); }
  bool Put(uint64_t arena, const std::string& description) {
    if (!writer_.HasRoom(1)) return false;
    Entry entry;
    writer_.Write({entry.data(), direct_channel::Encode({.arena = arena, .bit = 7}, description, entry)});
    return true;
  }

  std::vector<uint64_t> memory_ = std::vector<uint64_t>(direct_channel::BytesOfProducerPage(capacity()) / 8 + 16);
  direct_channel::ProducerPage& producer_ =
      *reinterpret_cast<direct_channel::ProducerPage*>((reinterpret_cast<uintptr_t>(memory_.data()) + 127) / 128 * 128);
  direct_channel::ConsumerPage consumer_{};
  spsc::Writer<Format> writer_{producer_.progress, direct_channel::SlotsOf(producer_, capacity()), consumer_.progress};
  spsc::Reader<Format> reader_{consumer_.progress, producer_.progress,
                               direct_channel::SlotsOf(std::as_const(producer_), capacity())};
};

TEST_P(DirectChannelQueueTest, HoldsAsManyEntriesAsTheChannel) {
  for (uint64_t i = 0; i < capacity(); ++i) EXPECT_TRUE(Put(i, ""));
  EXPECT_FALSE(Put(capacity(), ""));
  Entry entry;
  EXPECT_NE(reader_.Copy(entry), 0u);
  EXPECT_FALSE(Put(capacity(), "")) << "it is copied, not taken";
  reader_.Take();
  EXPECT_TRUE(Put(capacity(), ""));
  EXPECT_FALSE(writer_.broken() || reader_.broken());
}

TEST_P(DirectChannelQueueTest, EntriesOfEveryLengthArriveInOrder) {
  for (uint64_t bytes = 0; bytes <= Format::kDescriptionBytesMax; ++bytes) {
    const std::string description(bytes, static_cast<char>('a' + bytes % 26));
    ASSERT_TRUE(Put(bytes, description));
    Entry entry;
    ASSERT_EQ(reader_.Copy(entry), Format::kHeaderWords + (bytes + 7) / 8);
    reader_.Take();
    EXPECT_EQ(direct_channel::HeaderOf(entry).arena, bytes);
    EXPECT_EQ(direct_channel::HeaderOf(entry).bit, 7u);
    EXPECT_EQ(direct_channel::DescriptionOf(entry), description);
  }
}

TEST_P(DirectChannelQueueTest, AnEntryIsReadWithoutBeingTaken) {
  for (uint64_t i = 0; i < 2 * capacity(); ++i) {
    ASSERT_TRUE(Put(i, "x"));
    Entry entry;
    const auto slots = direct_channel::SlotsOf(std::as_const(producer_), capacity());
    ASSERT_NE(spsc::CopyEntry<Format>(slots, i, entry), 0u);
    EXPECT_EQ(direct_channel::HeaderOf(entry).arena, i);
    ASSERT_NE(reader_.Copy(entry), 0u);
    reader_.Take();
  }
}

TEST_P(DirectChannelQueueTest, AnEntryLongerThanASlotBreaksTheQueue) {
  ASSERT_TRUE(Put(1, "x"));
  direct_channel::SlotsOf(producer_, capacity())[0] = Format::kDescriptionBytesMax + 1;
  Entry entry;
  EXPECT_EQ(reader_.Copy(entry), 0u);
  EXPECT_TRUE(reader_.broken());
}

INSTANTIATE_TEST_SUITE_P(Capacities, DirectChannelQueueTest, ::testing::Values(1, 3, 16, direct_channel::kCapacityMax));

}  // namespace
}  // namespace arraybridge
