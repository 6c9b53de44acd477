// SPDX-License-Identifier: Apache-2.0
// Explores every run of a producer, a consumer and a broker that revokes their direct channel: each sent entry is
// received once, from the direct channel or from the broker's queue. The steps are the functions of
// proto/boundary/layouts/direct_channel.h and spsc_queue.h, compiled for the machine (machine.h).
// spsc_queue_model_test has what a queue itself claims. Omitting a step that the argument needs must lead to an error;
// otherwise the test would prove nothing.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/boundary/layouts/direct_channel.h"
#include "tests/unit/boundary/reordering/machine.h"

namespace arraybridge {
namespace {

using machine::Machine;
using machine::Relaxed;
using machine::Weaker;
using machine::WithoutFence;
using machine::WithoutStore;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;

// A direct channel of two entries. An entry is one word, so that there are few runs.
struct Format {
  static constexpr uint64_t kSlotWords = 1;
  static constexpr uint64_t kSlots = 2;
  static constexpr uint64_t kEntryWordsMax = 1;
  static constexpr uint64_t WordsOf(uint64_t /*first_word*/) { return 1; }
};
using Entry = spsc::Entry<Format>;
constexpr Entry kEntry{7};

class DirectChannelModelTest : public testing::Test {
 protected:
  enum Thread : size_t { kProducer, kConsumer, kBroker };

  // As DirectChannel::TakeAll copies what the consumer has not taken.
  bool QueueRest(Entry& queued) {
    uint64_t head = 0;
    uint64_t taken = 0;
    direct_channel::LoadCounts(producer_, consumer_, &head, &taken);
    is_possible_ = taken <= head && head - taken <= Format::kSlots;
    direct_channel::Decide(control_, head, is_possible_ ? taken : head, is_possible_);
    return is_possible_ && taken != head && spsc::CopyEntry<Format>(slots_, taken, queued) != 0;
  }

  direct_channel::ProducerPage producer_{};
  std::array<uint64_t, Format::kSlots> slots_{};  // of the producer
  direct_channel::ConsumerPage consumer_{};
  direct_channel::ControlBlock control_{};
  bool is_possible_ = false;  // what the broker believes of the counts
};

// What an end finds after it has counted an entry, and what it then reads in the control block.
struct Told {
  bool stands = false;
  bool has_ended = false;
  uint64_t count = 0;

  // `counted`: the count of the control block in the end.
  bool Counts(uint64_t counted) const { return stands || counted == 1; }
  bool IsRight(uint64_t counted) const { return !has_ended || count == counted; }
};

struct Outcome {
  uint64_t direct = 0;  // distinct final states in which the entry was received on the direct channel,
  uint64_t queued = 0;  // through the broker's queue,
  uint64_t unsent = 0;  // or its sender learned that it must send by a call
  uint64_t wrong = 0;
};

class RevokeTest : public DirectChannelModelTest {
 protected:
  Outcome Explore(const Weaker& weaker = {}) {
    Outcome outcome;
    Machine all({[this] { Produce(); }, [this] { Consume(); }, [this] { Revoke(); }}, weaker);
    all.Explore([&] {
      const uint64_t counted = all.Final(control_.counted);
      const uint64_t taken = all.Final(control_.taken);
      const bool sent = producer_told_.Counts(counted);
      const bool direct = has_copied_ && consumer_told_.Counts(taken);
      outcome.direct += direct ? 1 : 0;
      outcome.queued += is_queued_ ? 1 : 0;
      outcome.unsent += sent ? 0 : 1;
      const bool once = (direct ? 1 : 0) + (is_queued_ ? 1 : 0) == (sent ? 1 : 0);
      const bool whole = (!direct || copied_ == kEntry) && (!is_queued_ || queued_ == kEntry);
      const bool told = producer_told_.IsRight(counted) && consumer_told_.IsRight(taken);
      outcome.wrong += once && whole && told && is_possible_ ? 0 : 1;
    });
    return outcome;
  }

 private:
  // What DirectPages::Pass and AwaitRevoked say, and the count that DirectProducer::Put or DirectConsumer::Take reads.
  Told Ask(const spsc::Progress& other, const uint64_t& count) const {
    Told told;
    static_cast<void>(spsc::SleepOf(other));
    told.stands = direct_channel::Stands(control_);
    if (told.stands) return told;
    told.has_ended = Load(control_.revoked, kAcquire) == direct_channel::kRevoked;
    if (told.has_ended) told.count = Load(count, kRelaxed);
    return told;
  }
  void Produce() {
    spsc::Writer<Format> writer(producer_.progress, slots_, consumer_.progress);
    writer.Write(kEntry);
    producer_told_ = Ask(consumer_.progress, control_.counted);
  }
  void Consume() {
    spsc::Reader<Format> reader(consumer_.progress, producer_.progress, slots_);
    consumer_told_ = {};
    has_copied_ = reader.Copy(copied_) != 0;
    if (!has_copied_) return;
    reader.Take();
    consumer_told_ = Ask(producer_.progress, control_.taken);
  }
  void Revoke() {
    direct_channel::BeginRevoke(control_);
    is_queued_ = QueueRest(queued_);
    direct_channel::EndRevoke(control_);
  }

  Told producer_told_;
  Told consumer_told_;
  bool has_copied_ = false;  // the consumer
  Entry copied_{};
  bool is_queued_ = false;  // by the broker
  Entry queued_{};
};

TEST_F(RevokeTest, ASentEntryIsReceivedOnceHoweverTheDirectChannelEnds) {
  const Outcome outcome = Explore();
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_GT(outcome.direct, 0u);
  EXPECT_GT(outcome.queued, 0u);
  EXPECT_GT(outcome.unsent, 0u);
}

TEST_F(RevokeTest, EveryStepOfTheArgumentIsNeeded) {
  const auto wrong = [this](const Weaker& weaker) { return Explore(weaker).wrong; };
  EXPECT_GT(wrong(WithoutFence(kProducer, 0)), 0u) << "the sender assumes that its entry counted";
  EXPECT_GT(wrong(WithoutFence(kConsumer, 0)), 0u) << "the entry is received twice";
  EXPECT_GT(wrong(WithoutFence(kBroker, 0)), 0u)
      << "the broker reads the counts before the ends see that the direct channel has ended";
  EXPECT_GT(wrong(Relaxed(kProducer, &producer_.progress.head)), 0u) << "an entry is visible before it is written";
  EXPECT_GT(wrong(Relaxed(kBroker, &control_.revoked)), 0u)
      << "an end sees the end of the direct channel before the counts";
  EXPECT_GT(wrong(Relaxed(kBroker, &consumer_.progress.taken)), 0u) << "the broker sees that more was taken than sent";
}

// A consumer reports that it has taken the entry, and later that it has not. The producer reuses the entry's bytes
// after the first report. If the broker put the entry into the queue nevertheless, its receiver would see the new
// bytes.
class RetoldTest : public DirectChannelModelTest {
 protected:
  RetoldTest() { spsc::Writer<Format>(producer_.progress, slots_, consumer_.progress).Write(kEntry); }

  uint64_t Wrong(const Weaker& weaker = {}) {
    uint64_t wrong = 0;
    Machine({[this] { Reuse(); }, [this] { Report(); }, [this] { Revoke(); }}, weaker).Explore([&] {
      wrong += is_queued_ && queued_ != kEntry ? 1 : 0;
    });
    return wrong;
  }

 private:
  // As DirectProducer::Poll and See, and Put for a slot.
  void Reuse() {
    if (Load(consumer_.progress.taken, kAcquire) == 0 || !direct_channel::StoreSeen(producer_, 1, control_)) return;
    Store(slots_[0], kEntry[0] + 1, kRelaxed);
  }
  void Report() {
    spsc::Reader<Format> reader(consumer_.progress, producer_.progress, slots_);
    reader.Show(1);
    reader.Show(0);
  }
  void Revoke() {
    direct_channel::BeginRevoke(control_);
    is_queued_ = QueueRest(queued_);
  }

  bool is_queued_ = false;
  Entry queued_{};
};

TEST_F(RetoldTest, AReusedEntryIsNotQueuedWhateverTheReceiverReportsLater) {
  EXPECT_EQ(Wrong(), 0u);
  EXPECT_GT(Wrong(WithoutStore(kProducer, &producer_.seen)), 0u) << "the broker relies only on the receiver";
  EXPECT_GT(Wrong(WithoutFence(kProducer, 0)), 0u);
  EXPECT_GT(Wrong(WithoutFence(kBroker, 0)), 0u);
}

}  // namespace
}  // namespace arraybridge
