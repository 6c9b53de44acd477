// SPDX-License-Identifier: Apache-2.0
// The fences of queues and direct channels, as compiled, on this machine: two threads each write a word and then read
// the other's; at least one of them must see the other's write. {hazard,spsc_queue,direct_channel}_model_test show why
// the protocols need that; this test shows that the code does it.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "proto/boundary/layouts/direct_channel.h"
#include "proto/boundary/layouts/session_queue.h"

namespace arraybridge {
namespace {

constexpr size_t kPlaces = 64;  // that two threads process in parallel
constexpr uint64_t kRounds = 4000;

struct Place {
  direct_channel::ProducerPage producer;
  std::array<uint64_t, direct_channel::Format::kSlotWords> slots;
  direct_channel::ConsumerPage consumer;
  alignas(64) direct_channel::ControlBlock control;
  session_queue::Page client;
  session_queue::Page daemon;
  spsc::Writer<session_queue::Format> writer{client.progress, client.slots, daemon.progress};
  spsc::Reader<session_queue::Format> reader{daemon.progress, client.progress, client.slots};
  spsc::Doorbell writers{client.progress, daemon.progress};
  spsc::Doorbell readers{daemon.progress, client.progress};
  spsc::Writer<direct_channel::Format> direct_writer{producer.progress, slots, consumer.progress};
  spsc::Doorbell producers{producer.progress, consumer.progress};
};

bool HasSeveralCpus() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1;
}

// Spins, so that both threads run at the same time; yields, because there may be more threads than processors.
template <class Ready>
void Await(Ready ready) {
  for (unsigned turn = 1; !ready(); ++turn) {
    if (turn % 1024 == 0) ::sched_yield();
  }
}

class FenceTest : public ::testing::Test {
 protected:
  // Each side writes its word of a place for this round, and returns whether it missed the other's write.
  using Side = std::function<bool(Place&, uint64_t round)>;

  void SetUp() override {
    if (!HasSeveralCpus()) GTEST_SKIP() << "a single processor does not reorder between two threads";
  }

  // The number of rounds in which neither side saw the other; stops at the first if `most` is 1.
  uint64_t BothMissed(const Side& one, const Side& other, uint64_t most = UINT64_MAX) {
    std::atomic<uint64_t> begun{0};  // number of rounds that the first thread has begun
    std::atomic<uint64_t> ended{0};
    std::array<bool, kPlaces> missed{};
    std::thread second([&] {
      for (uint64_t round = 1;; ++round) {
        Await([&] { return begun.load() >= round; });
        if (stop_.load()) return;
        for (size_t i = 0; i < kPlaces; ++i) missed[i] = other((*places_)[i], round);
        ended.store(round);
      }
    });
    uint64_t count = 0;
    uint64_t round = 1;
    for (; round <= kRounds && count < most; ++round) {
      std::array<bool, kPlaces> its{};
      begun.store(round);
      for (size_t i = 0; i < kPlaces; ++i) its[i] = one((*places_)[i], round);
      Await([&] { return ended.load() >= round; });
      for (size_t i = 0; i < kPlaces; ++i) count += its[i] && missed[i] ? 1 : 0;
    }
    stop_ = true;
    begun.store(round);
    second.join();
    stop_ = false;
    return count;
  }

  std::atomic<bool> stop_{false};
  const std::unique_ptr<std::array<Place, kPlaces>> places_ = std::make_unique<std::array<Place, kPlaces>>();
};

TEST_F(FenceTest, WithoutAFenceBothSidesCanMiss) {
  const uint64_t missed = BothMissed(
      [](Place& at, uint64_t round) {
        Store(at.client.progress.head, round, std::memory_order_release);
        return Load(at.daemon.progress.asleep, std::memory_order_relaxed) != round;
      },
      [](Place& at, uint64_t round) {
        Store(at.daemon.progress.asleep, round, std::memory_order_relaxed);
        return Load(at.client.progress.head, std::memory_order_relaxed) != round;
      },
      1);
  if (missed == 0) GTEST_SKIP() << "nothing was reordered this time, so the other tests prove nothing here";
}

TEST_F(FenceTest, AWriterSeesThatTheReaderSleepsOrTheReaderSeesTheEntry) {
  EXPECT_EQ(BothMissed(
                [](Place& at, uint64_t round) {
                  EXPECT_TRUE(at.writer.HasRoom(1));
                  at.writer.Write(std::array<uint64_t, session_queue::Format::kHeaderWords>{0, round});
                  at.writers.IsDue();
                  return Load(at.daemon.progress.asleep, std::memory_order_relaxed) != round;
                },
                [](Place& at, uint64_t /*round*/) {
                  at.readers.Announce();
                  ThreadFence(std::memory_order_seq_cst);
                  const bool missed = !at.reader.HasEntry();
                  session_queue::Entry entry;
                  Await([&] { return at.reader.Copy(entry) != 0; });
                  at.reader.Take();
                  return missed;
                }),
            0u);
}

TEST_F(FenceTest, AProducerSeesThatTheBrokerRevokesOrTheBrokerSeesTheEntry) {
  // A control block is revoked once in its life; here it is revoked in each round, whose number is the count of
  // entries.
  EXPECT_EQ(BothMissed(
                [](Place& at, uint64_t round) {
                  at.direct_writer.Write(std::array<uint64_t, direct_channel::Format::kHeaderWords>{0, round});
                  at.producers.IsDue();
                  const bool stands = Load(at.control.revoked, std::memory_order_acquire) == direct_channel::kStands;
                  Await([&] { return Load(at.control.revoked, std::memory_order_relaxed) != direct_channel::kStands; });
                  Store(at.control.revoked, direct_channel::kStands, std::memory_order_relaxed);
                  return stands;
                },
                [](Place& at, uint64_t round) {
                  direct_channel::BeginRevoke(at.control);
                  return Load(at.producer.progress.head, std::memory_order_acquire) != round;
                }),
            0u);
}

}  // namespace
}  // namespace arraybridge
