// SPDX-License-Identifier: Apache-2.0
// The receiving end of a direct channel beside the broker's side of it, in one process: what happens when the direct
// channel ends in the middle of a step.
#include <sched.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "client/direct_channels/direct_consumers.h"
#include "daemon/memory/shared_pages/direct_channel.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/client/mapped_direct.h"

namespace arraybridge::daemon {
namespace {

class DirectConsumerTest : public ::testing::Test {
 protected:
  using Outcome = DirectConsumer::Outcome;

  DirectConsumerTest()
      : direct_(*DirectChannel::Create(4, 1)),
        sent_(MapDirect(*direct_, DirectEnd::kProducer)),
        taken_(MapDirect(*direct_, DirectEnd::kConsumer)),
        lifeline_(Socket()) {
    direct_->Open(0, 0, 1);
    taken_.NoteArena(1, 0);
    taken_.NoteArena(2, 0);
  }

  static UniqueFd Socket() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    static UniqueFd other;
    other.reset(ends[1]);
    return UniqueFd(ends[0]);
  }
  void Put(uint64_t arena) { direct_channel::WriteEntry(page(), 4, {.arena = arena, .bit = bit_++}, ""); }
  // The arenas of what the broker takes off the direct channel.
  std::vector<uint64_t> End() {
    std::vector<uint64_t> queued;
    direct_->Revoke(
        [&](const direct_channel::Entry& entry, uint64_t number) {
          numbers_.push_back(number);
          return queued.push_back(direct_channel::HeaderOf(entry).arena), true;
        },
        [](bool, uint64_t) {});
    return queued;
  }
  Outcome Take(const DirectConsumer::MapsArena& maps = [](const auto&) { return true; }) {
    return taken_.Take(lifeline_, 0, maps, &entry_, &sequence_);
  }
  uint64_t taken_arena() const { return direct_channel::HeaderOf(entry_).arena; }
  const direct_channel::ConsumerPage& page_of_consumer() const {
    return *static_cast<const direct_channel::ConsumerPage*>(sent_->other());
  }
  direct_channel::ProducerPage& page() { return *static_cast<direct_channel::ProducerPage*>(sent_->own()); }

  const std::unique_ptr<DirectChannel> direct_;
  const std::unique_ptr<DirectPages> sent_;
  DirectConsumer taken_;
  Lifeline lifeline_;
  direct_channel::Entry entry_{};
  uint64_t sequence_ = 0;
  uint64_t bit_ = 0;               // of the next entry
  std::vector<uint64_t> numbers_;  // of the entries that the broker took off
};

TEST_F(DirectConsumerTest, TakesInOrder) {
  EXPECT_EQ(Take(), Outcome::kEmpty);
  Put(1);
  Put(2);
  EXPECT_EQ(Take(), Outcome::kTaken);
  EXPECT_EQ(taken_arena(), 1u);
  EXPECT_EQ(sequence_, 1u);
  EXPECT_EQ(Take([](const auto&) { return false; }), Outcome::kLacksArena);
  EXPECT_EQ(Take(), Outcome::kTaken) << "it was not taken";
  EXPECT_EQ(taken_arena(), 2u);
  EXPECT_EQ(Take(), Outcome::kEmpty);
}

TEST_F(DirectConsumerTest, LacksAnArenaThatTheBrokerDoesNotKnowOfIt) {
  Put(3);
  const auto asked = [](const auto&) { return ADD_FAILURE() << "this process may map it for another's sake", true; };
  EXPECT_EQ(Take(asked), Outcome::kLacksArena);
  taken_.NoteArena(3, 1);
  EXPECT_EQ(Take(asked), Outcome::kLacksArena) << "another generation";
  taken_.NoteArena(3, 0);
  EXPECT_EQ(Take(), Outcome::kTaken);
}

TEST_F(DirectConsumerTest, KnowsTheRangesOfWhatItTookUntilTheyAreReturned) {
  direct_channel::WriteEntry(page(), 4, {.arena = 1, .offset = 256, .size = 512, .bit = 5}, "");
  EXPECT_EQ(taken_.FindAndHold(1, 256, 512), std::nullopt);
  EXPECT_EQ(Take(), Outcome::kTaken);
  const auto held = taken_.FindAndHold(1, 512, 256);
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->bit, 5u);
  EXPECT_EQ(held->offset, 256u);
  EXPECT_EQ(held->size, 512u);
  EXPECT_EQ(taken_.FindAndHold(2, 512, 256), std::nullopt) << "another arena";
  EXPECT_EQ(taken_.FindAndHold(1, 0, 512), std::nullopt) << "before it";
  EXPECT_EQ(taken_.FindAndHold(1, 512, 257), std::nullopt) << "beyond it";
  const auto bits = [&] { return page_of_consumer().returned[0]; };
  const uint64_t before = bits();
  EXPECT_TRUE(taken_.FindAndHold(1, 512, 256).has_value());
  taken_.Return(5);
  EXPECT_EQ(bits(), before) << "its forwards use it";
  EXPECT_EQ(taken_.FindAndHold(1, 512, 256), std::nullopt) << "it has no arrays";
  taken_.ReleaseForward(5);
  EXPECT_EQ(bits(), before);
  taken_.ReleaseForward(5);
  EXPECT_EQ(bits(), before ^ uint64_t{1} << 5) << "nobody does any more";
  EXPECT_EQ(taken_.FindAndHold(1, 512, 256), std::nullopt);
}

TEST_F(DirectConsumerTest, ABitThatIsNotReturnedIsNoOthers) {
  direct_channel::WriteEntry(page(), 4, {.arena = 1, .bit = 5}, "");
  direct_channel::WriteEntry(page(), 4, {.arena = 2, .bit = 5}, "");
  EXPECT_EQ(Take(), Outcome::kTaken);
  EXPECT_EQ(Take(), Outcome::kMalformed);
  taken_.Return(5);
  EXPECT_EQ(Take(), Outcome::kTaken);
}

TEST_F(DirectConsumerTest, WhatTheBrokerTookIsNotTaken) {
  Put(1);
  Put(2);
  EXPECT_EQ(Take(), Outcome::kTaken);
  std::vector<uint64_t> queued;
  const auto ends_meanwhile = [&](const direct_channel::Header&) { return queued = End(), true; };
  EXPECT_EQ(Take(ends_meanwhile), Outcome::kEnded) << "the broker saw it standing";
  EXPECT_EQ(queued, std::vector<uint64_t>{2});
  EXPECT_EQ(numbers_, std::vector<uint64_t>{2});
  EXPECT_EQ(Take(), Outcome::kEnded);
}

TEST_F(DirectConsumerTest, WhatComesByCallsComesFirst) {
  Put(1);
  direct_->AddCall();
  EXPECT_EQ(Take(), Outcome::kByCalls);
  EXPECT_EQ(taken_.Take(
                lifeline_, 1, [](const auto&) { return true; }, &entry_, &sequence_),
            Outcome::kTaken);
  EXPECT_EQ(sequence_, 2u) << "the call's has 1";
}

TEST_F(DirectConsumerTest, TakesNothingFromAHeadThatCannotBe) {
  page().progress.head = 5;
  EXPECT_EQ(Take(), Outcome::kMalformed);
  page().progress.head = 1;
  EXPECT_EQ(Take(), Outcome::kMalformed) << "for good";
}

TEST_F(DirectConsumerTest, TakesNoEntryThatIsLongerThanASlot) {
  Put(1);
  direct_channel::EntryAt(page(), 4, 0)[0] = direct_channel::Format::kDescriptionBytesMax + 1;
  EXPECT_EQ(Take(), Outcome::kMalformed);
}

TEST_F(DirectConsumerTest, TakesNoEntryWithAReturnBitThatCannotBe) {
  direct_channel::WriteEntry(page(), 4, {.bit = direct_channel::kReturnBits}, "");
  EXPECT_EQ(Take(), Outcome::kMalformed);
}

TEST_F(DirectConsumerTest, AWaitEndsWithItsDeadlineOrTheDirectChannel) {
  const Lifeline::Interrupted never;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  EXPECT_EQ(taken_.AwaitEntry(0, {lifeline_, until, {}, never}).code(), Code::kDeadlineExceeded);
  const Lifeline::Interrupted always = [] { return true; };
  EXPECT_EQ(taken_.AwaitEntry(0, {lifeline_, {}, {}, always}).code(), Code::kCancelled);
  EXPECT_TRUE(End().empty());
  EXPECT_TRUE(taken_.AwaitEntry(0, {lifeline_, {}, {}, never}).ok());
  EXPECT_EQ(Take(), Outcome::kEnded);
}

// Leaves this thread one processor.
class OneProcessor {
 public:
  OneProcessor() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(::sched_getcpu()), &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneProcessor() { static_cast<void>(::sched_setaffinity(0, sizeof before_, &before_)); }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_{};
};

TEST_F(DirectConsumerTest, AfterTwoLongWaitsAnEndOnOneProcessorSleepsAtOnce) {
  const OneProcessor one;
  Lifeline lifeline(Socket());
  const Lifeline::Interrupted never;
  // Longer than the other processes of a busy machine keep the processor: only the back-off makes this end sleep.
  const DirectWait how{lifeline, {}, std::chrono::minutes(1), never};
  // True: a wait in which the processor is away for a while has announced a sleep.
  const auto sleeps = [&] {
    const uint64_t before = page().progress.asleep;
    bool announced = false;
    int turn = 0;
    const auto ready = [&] {
      announced = announced || page().progress.asleep != before;
      if (++turn == 2 && !announced) std::this_thread::sleep_for(2 * SpinBackoff::kShort);
      return turn > 2;
    };
    EXPECT_TRUE(sent_->Wait(ready, how).ok());
    return announced;
  };
  EXPECT_FALSE(sleeps());
  EXPECT_FALSE(sleeps());
  EXPECT_TRUE(sleeps());
}

TEST_F(DirectConsumerTest, PagesOfAnotherSizeAreNoDirectChannel) {
  const std::unique_ptr<DirectChannel> other = *DirectChannel::Create(5, 2);
  auto files = *other->Export(DirectEnd::kConsumer);
  EXPECT_FALSE(DirectPages::Map(true, files).ok()) << "a receiver's, taken for a sender's";
}

}  // namespace
}  // namespace arraybridge::daemon
