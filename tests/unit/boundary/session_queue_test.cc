// SPDX-License-Identifier: Apache-2.0
// Both sides of the queue in one process: entries of every length, full and wrapping queues, impossible counts and
// lengths, doorbells, and two threads that sleep and wake each other.
#include "proto/boundary/layouts/session_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>

namespace arraybridge::session_queue {
namespace {

constexpr uint64_t kSlots = Format::kSlots;

class SessionQueueTest : public ::testing::Test {
 protected:
  bool Send(uint64_t id, std::string_view payload) {
    Entry entry;
    const uint64_t words = Encode({.verb = 5, .flags = 0, .bytes = 0, .status = 0, .id = id}, payload, entry);
    if (!writer_.HasRoom(spsc::SlotsOf<Format>(words))) return false;
    writer_.Write({entry.data(), words});
    return true;
  }
  std::string Receive(uint64_t id) {
    if (reader_.Copy(entry_) == 0) return "nothing";
    EXPECT_EQ(HeaderOf(entry_).id, id);
    reader_.Take();
    return std::string(PayloadOf(entry_));
  }

  const std::unique_ptr<Page> client_ = std::make_unique<Page>();
  const std::unique_ptr<Page> daemon_ = std::make_unique<Page>();
  spsc::Writer<Format> writer_{client_->progress, client_->slots, daemon_->progress};
  spsc::Reader<Format> reader_{daemon_->progress, client_->progress, client_->slots};
  Entry entry_{};
};

TEST_F(SessionQueueTest, EntriesOfEveryLengthArriveInOrder) {
  std::mt19937 chance(7);
  uint64_t id = 0;
  for (size_t bytes = 0; bytes <= Format::kPayloadBytesMax; bytes += 1 + bytes / 64) {
    const std::string payload(bytes, static_cast<char>(chance()));
    ASSERT_TRUE(Send(++id, payload));
    ASSERT_EQ(Receive(id), payload);
  }
  EXPECT_EQ(Receive(0), "nothing");
}

TEST_F(SessionQueueTest, AFullQueueRefusesUntilItsEntriesAreTaken) {
  uint64_t sent = 0;
  while (Send(sent + 1, "12345678")) ++sent;
  EXPECT_EQ(sent, kSlots);
  EXPECT_EQ(Receive(1), "12345678");
  EXPECT_FALSE(Send(0, std::string(Format::kPayloadBytesMax, 'x'))) << "one slot is free, and the entry needs 32";
  EXPECT_TRUE(Send(sent + 1, "a"));
  EXPECT_FALSE(Send(sent + 2, "a"));
  EXPECT_FALSE(writer_.broken());
}

TEST_F(SessionQueueTest, ACopiedEntryDoesNotChange) {
  ASSERT_TRUE(Send(1, "before"));
  ASSERT_NE(reader_.Copy(entry_), 0u);
  client_->slots[Format::kHeaderWords] = ~uint64_t{0};
  EXPECT_EQ(PayloadOf(entry_), "before");
}

TEST_F(SessionQueueTest, MoreTakenThanWasFilledBreaksTheWriterBeforeItIsFull) {
  for (const uint64_t taken : {uint64_t{2}, kSlots, ~uint64_t{0}}) {
    spsc::Writer<Format> writer(client_->progress, client_->slots, daemon_->progress);
    writer.Write(std::array<uint64_t, 1>{});
    daemon_->progress.taken = taken;
    EXPECT_FALSE(writer.HasRoom(kSlots)) << taken;
    EXPECT_TRUE(writer.broken()) << taken;
    daemon_->progress.taken = 0;
    EXPECT_FALSE(writer.HasRoom(1)) << "it stays broken";
  }
}

TEST_F(SessionQueueTest, AnImpossibleHeadBreaksTheReader) {
  for (const uint64_t head : {kSlots + 1, ~uint64_t{0}, uint64_t{1} << 63}) {
    spsc::Reader<Format> reader(daemon_->progress, client_->progress, client_->slots);
    client_->progress.head = head;
    EXPECT_EQ(reader.Copy(entry_), 0u);
    EXPECT_TRUE(reader.broken());
    client_->progress.head = 1;
    EXPECT_EQ(reader.Copy(entry_), 0u) << "it stays broken";
  }
}

TEST_F(SessionQueueTest, AnImpossibleLengthBreaksTheReader) {
  for (const uint64_t bytes : {uint64_t{Format::kPayloadBytesMax + 1}, uint64_t{0xFFFF}, uint64_t{200}}) {
    spsc::Reader<Format> reader(daemon_->progress, client_->progress, client_->slots);
    client_->progress.head = 1;  // one slot: 112 bytes of payload
    client_->slots[0] = bytes << 16;
    EXPECT_EQ(reader.Copy(entry_), 0u) << bytes;
    EXPECT_TRUE(reader.broken()) << bytes;
  }
}

TEST_F(SessionQueueTest, AnImpossibleTakenCountBreaksTheWriter) {
  uint64_t sent = 0;
  while (Send(sent + 1, "")) ++sent;
  daemon_->progress.taken = sent + 1;
  EXPECT_FALSE(Send(0, ""));
  EXPECT_TRUE(writer_.broken());
  daemon_->progress.taken = sent;
  EXPECT_FALSE(Send(0, "")) << "it stays broken";
}

TEST_F(SessionQueueTest, ADoorbellIsDueOnceForEachSleep) {
  daemon_->progress.asleep = 1;  // the value in a new page
  spsc::Doorbell daemon(daemon_->progress, client_->progress);
  spsc::Doorbell client(client_->progress, daemon_->progress);
  EXPECT_TRUE(client.IsDue());
  EXPECT_FALSE(client.IsDue());
  client.Repeat();
  EXPECT_TRUE(client.IsDue()) << "the doorbell could not be sent";
  daemon.Wake();
  EXPECT_FALSE(client.IsDue());
  daemon.Announce();
  EXPECT_TRUE(client.IsDue());
  EXPECT_FALSE(client.IsDue());
}

// Each side sleeps when it finds no entry. A lost doorbell would leave both sides asleep forever.
TEST_F(SessionQueueTest, TwoThreadsThatSleepAndWakeEachOtherLoseNoEntry) {
  constexpr uint64_t kRounds = 2000;
  daemon_->progress.asleep = client_->progress.asleep = 1;
  std::atomic<uint32_t> daemon_rung{0};
  std::atomic<uint32_t> client_rung{0};
  const auto ring = [](std::atomic<uint32_t>& bell) {
    bell.fetch_add(1);
    bell.notify_one();
  };
  std::thread daemon([&] {
    spsc::Writer<Format> completions(daemon_->progress, daemon_->slots, client_->progress);
    spsc::Doorbell doorbell(daemon_->progress, client_->progress);
    Entry entry;
    for (uint64_t served = 0; served < kRounds;) {
      const uint32_t rung = daemon_rung.load();
      doorbell.Wake();
      for (; reader_.Copy(entry) != 0; ++served) {
        reader_.Take();
        ASSERT_TRUE(completions.HasRoom(1));
        completions.Write({entry.data(), Format::kHeaderWords});
      }
      reader_.Serve();
      if (doorbell.IsDue()) ring(client_rung);
      doorbell.Announce();
      ThreadFence(std::memory_order_seq_cst);
      if (served < kRounds && !reader_.HasEntry()) daemon_rung.wait(rung);
    }
  });
  spsc::Reader<Format> completions(client_->progress, daemon_->progress, daemon_->slots);
  spsc::Doorbell doorbell(client_->progress, daemon_->progress);
  Entry entry;
  for (uint64_t id = 1; id <= kRounds; ++id) {
    uint32_t rung = client_rung.load();
    doorbell.Wake();
    ASSERT_TRUE(Send(id, ""));
    if (doorbell.IsDue()) ring(daemon_rung);
    while (completions.Copy(entry) == 0) {
      doorbell.Announce();
      ThreadFence(std::memory_order_seq_cst);
      if (!completions.HasEntry()) client_rung.wait(rung);
      rung = client_rung.load();
      doorbell.Wake();
    }
    completions.Take();
    ASSERT_EQ(HeaderOf(entry).id, id);
  }
  daemon.join();
  EXPECT_EQ(daemon_->progress.served, kRounds);
}

}  // namespace
}  // namespace arraybridge::session_queue
