// SPDX-License-Identifier: Apache-2.0
// The sending end of a direct channel beside the broker's side of it, in one process: whose a range is when the direct
// channel ends.
#include <memory>

#include <gtest/gtest.h>

#include "client/direct_channels/direct_producer.h"
#include "daemon/memory/shared_pages/direct_channel.h"
#include "tests/unit/client/mapped_direct.h"
#include "tests/unit/client/quiet_session.h"
#include "tests/unit/client/static_mapping.h"

namespace arraybridge::daemon {
namespace {

class DirectProducerTest : public ::testing::Test {
 protected:
  using Outcome = DirectProducer::Outcome;

  DirectProducerTest()
      : direct_(*DirectChannel::Create(2, 1)),
        sent_(MapDirect(*direct_, DirectEnd::kProducer), session_->lifeline(), session_->written()) {
    direct_->Open(0, 0, 1);
    Handle handle;
    handle.arena = 1;
    handle.generation = 7;
    handle.arena_size = StaticMapping::kBytes;
    auto arena = std::make_shared<WrittenArena>(handle, std::make_unique<StaticMapping>(), false);
    const auto first = session_->written().Add(std::move(arena), kBytes);
    session_->written().ReleaseLocal(*first.arena, first.offset);
  }

  WrittenArenas::Carving CarveForBroker() { return *session_->written().CarveForBroker(Device{}, kBytes); }
  uint64_t OffsetOfNext() {
    const auto next = session_->written().Carve(Device{}, kBytes);
    EXPECT_TRUE(next.has_value());
    return next->offset;
  }
  // The entries that stand here are shares of the channel now.
  void Revoke() {
    direct_->Revoke([](const direct_channel::Entry&, uint64_t) { return true; }, [](bool, uint64_t) {});
  }

  static constexpr uint64_t kBytes = 256;
  QuietSession session_;
  const std::unique_ptr<DirectChannel> direct_;
  DirectProducer sent_;
};

TEST_F(DirectProducerTest, ACopyIsNotFreedWithTheRangeThatLiesThereNow) {
  const auto copy = CarveForBroker();
  ASSERT_EQ(sent_.Put(copy, kBytes, ""), Outcome::kSent);
  Revoke();
  const wire::Range returned{1, copy.offset, kBytes};
  session_->written().Return({&returned, 1});  // its receiver has dropped it, before this end has looked
  ASSERT_EQ(OffsetOfNext(), copy.offset);
  EXPECT_TRUE(sent_.Poll());
  EXPECT_NE(OffsetOfNext(), copy.offset) << "the array that lies there now is in use";
}

TEST_F(DirectProducerTest, ACopyThatIsNotSentStaysItsCallers) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(sent_.Put(CarveForBroker(), kBytes, ""), Outcome::kSent);
  EXPECT_FALSE(sent_.MayHaveFreeSlot());
  const auto copy = CarveForBroker();
  EXPECT_EQ(sent_.Put(copy, kBytes, ""), Outcome::kFull);
  Revoke();
  EXPECT_EQ(sent_.Put(copy, kBytes, ""), Outcome::kEnded);
  EXPECT_TRUE(sent_.Poll());
  session_->written().ReleaseForBroker(copy.arena->id, copy.offset);
  EXPECT_EQ(OffsetOfNext(), copy.offset);
}

TEST_F(DirectProducerTest, ACopyThatTheBrokerHasQueuedIsTheBrokersToReturn) {
  const auto copy = CarveForBroker();
  ASSERT_EQ(sent_.Put(copy, kBytes, ""), Outcome::kSent);
  EXPECT_EQ(sent_.outstanding(), 1u);
  Revoke();
  direct_->MarkGone();
  EXPECT_TRUE(sent_.Poll()) << "the broker queued it, and returns it itself";
  EXPECT_EQ(sent_.outstanding(), 0u);
  EXPECT_NE(OffsetOfNext(), copy.offset);
}

}  // namespace
}  // namespace arraybridge::daemon
