// SPDX-License-Identifier: Apache-2.0
// Explores every run of the two sides of proto/boundary/layouts/spsc_queue.h, compiled for a machine that reorders more
// than x86 and ARMv8 (machine.h): no request and no completion is lost, torn or duplicated, no slot is refilled before
// it was copied, and no side sleeps while there is an entry for it. Omitting a step that the argument needs must lead
// to an error.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/boundary/layouts/spsc_queue.h"
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
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSeqCst = std::memory_order_seq_cst;

// An entry is one word.
template <uint64_t kNumber>
struct Format {
  static constexpr uint64_t kSlotWords = 1;
  static constexpr uint64_t kSlots = kNumber;
  static constexpr uint64_t kEntryWordsMax = 1;
  static constexpr uint64_t WordsOf(uint64_t /*first_word*/) { return 1; }
};
constexpr std::array<uint64_t, 1> kRequest{1};
constexpr std::array<uint64_t, 1> kCompletion{2};

template <uint64_t kSlots>
struct Page {
  spsc::Progress progress{};
  std::array<uint64_t, kSlots> slots{};
};

// One side of two queues, for one run.
template <uint64_t kSlots>
struct Side {
  Side(Page<kSlots>& own, const Page<kSlots>& other)
      : writer(own.progress, own.slots, other.progress),
        reader(own.progress, other.progress, other.slots),
        doorbell(own.progress, other.progress) {}

  spsc::Writer<Format<kSlots>> writer;
  spsc::Reader<Format<kSlots>> reader;
  spsc::Doorbell doorbell;
};

struct Ends {
  uint64_t all = 0;
  uint64_t by_doorbell = 0;  // final states in which a doorbell woke the daemon, the client or both
  uint64_t wrong = 0;
};

// One request and its completion. The client submits, polls once, announces its sleep and polls again. The daemon polls
// and serves, announces its sleep, and polls and serves again.
class RoundTripTest : public testing::Test {
 protected:
  enum Thread : size_t { kClient, kDaemon };
  enum ClientFence : size_t { kAfterSubmit, kBeforeClientSleeps };
  // It polls in vain, or serves at once.
  enum DaemonFence : size_t { kBeforeDaemonSleeps, kAfterLateCompletion, kAfterCompletion = 0 };

  Ends Explore(const Weaker& weaker = {}) {
    Ends ends;
    Machine({[this] { Client(); }, [this] { Daemon(); }}, weaker).Explore([&] {
      const bool request_lost = served_ == 0 && !wakes_daemon_;
      const bool completion_lost = served_ > 0 && received_ == 0 && !wakes_client_;
      ++ends.all;
      ends.by_doorbell += wakes_daemon_ || wakes_client_ ? 1 : 0;
      ends.wrong += request_lost || completion_lost || torn_[kClient] || torn_[kDaemon] || served_ > 1 ? 1 : 0;
    });
    return ends;
  }

  Page<2> client_;
  Page<2> daemon_;
  bool daemon_takes_ = true;

 private:
  void Client() {
    Side<2> own(client_, daemon_);
    received_ = 0;
    torn_[kClient] = false;
    own.writer.Write(kRequest);
    wakes_daemon_ = own.doorbell.IsDue();
    Receive(own);
    if (received_ > 0) return;
    own.doorbell.Announce();
    ThreadFence(kSeqCst);
    if (own.reader.HasEntry()) Receive(own);
  }
  void Receive(Side<2>& own) {
    spsc::Entry<Format<2>> entry;
    if (own.reader.Copy(entry) == 0) return;
    torn_[kClient] |= entry != kCompletion;
    ++received_;
  }
  void Daemon() {
    Side<2> own(daemon_, client_);
    served_ = 0;
    wakes_client_ = torn_[kDaemon] = false;
    Serve(own);
    own.doorbell.Announce();
    ThreadFence(kSeqCst);
    if (own.reader.HasEntry() || !daemon_takes_) Serve(own);
  }
  void Serve(Side<2>& own) {
    spsc::Entry<Format<2>> entry;
    if (own.reader.Copy(entry) == 0) return;
    torn_[kDaemon] |= entry != kRequest;
    ++served_;
    if (daemon_takes_) own.reader.Take();
    own.writer.Write(kCompletion);
    own.reader.Serve();
    wakes_client_ |= own.doorbell.IsDue();
  }

  uint64_t served_ = 0;
  uint64_t received_ = 0;
  bool wakes_daemon_ = false;
  bool wakes_client_ = false;
  std::array<bool, 2> torn_{};
};

TEST_F(RoundTripTest, ARequestIsServedOnceAndItsCompletionArrives) {
  const Ends ends = Explore();
  EXPECT_EQ(ends.wrong, 0u);
  EXPECT_GT(ends.by_doorbell, 0u);
  EXPECT_GT(ends.all, ends.by_doorbell) << "some runs need no doorbell";
}

TEST_F(RoundTripTest, EachStepIsNeeded) {
  const auto wrong = [this](const Weaker& weaker) { return Explore(weaker).wrong; };
  EXPECT_GT(wrong(Relaxed(kClient, &client_.progress.head)), 0u);
  EXPECT_GT(wrong(Relaxed(kDaemon, &client_.progress.head)), 0u);
  EXPECT_GT(wrong(Relaxed(kDaemon, &daemon_.progress.head)), 0u);
  EXPECT_GT(wrong(Relaxed(kClient, &daemon_.progress.head)), 0u);
  EXPECT_GT(wrong(WithoutFence(kClient, kAfterSubmit)), 0u);
  EXPECT_GT(wrong(WithoutFence(kClient, kBeforeClientSleeps)), 0u);
  EXPECT_GT(wrong(WithoutFence(kDaemon, kBeforeDaemonSleeps)), 0u);
  EXPECT_GT(wrong(WithoutFence(kDaemon, kAfterLateCompletion)), 0u);
  EXPECT_GT(wrong(WithoutStore(kDaemon, &daemon_.progress.asleep)), 0u);
  EXPECT_GT(wrong(WithoutStore(kClient, &client_.progress.asleep)), 0u);
  daemon_takes_ = false;
  EXPECT_GT(wrong({}), 0u);
}

// One slot with an entry: the reader copies it; the writer waits for room to refill it, and may sleep meanwhile.
class RoomTest : public testing::Test {
 protected:
  enum Thread : size_t { kReader, kWriter };
  static constexpr size_t kAfterTake = 0;           // of the reader's fences
  static constexpr size_t kBeforeWriterSleeps = 1;  // of the writer's: the first one is HasRoom's

  RoomTest() { Side<1>(writer_, reader_).writer.Write(kRequest); }

  uint64_t Wrong(const Weaker& weaker = {}, bool copied_first = true) {
    uint64_t wrong = 0;
    Machine({[=, this] { Read(copied_first); }, [this] { Refill(); }}, weaker).Explore([&] {
      wrong += !has_copied_ || copied_ != kRequest || (waits_ && !wakes_writer_) ? 1 : 0;
    });
    return wrong;
  }

  Page<1> writer_;
  Page<1> reader_;

 private:
  void Read(bool copied_first) {
    Side<1> own(reader_, writer_);
    if (!copied_first) own.reader.Show(1);
    has_copied_ = own.reader.Copy(copied_) != 0;
    if (copied_first) own.reader.Take();
    wakes_writer_ = own.doorbell.IsDue();
  }
  void Refill() {
    Side<1> own(writer_, reader_);
    own.writer.Continue();
    waits_ = false;
    if (own.writer.HasRoom(1)) return own.writer.Write(kCompletion);
    own.doorbell.Announce();
    ThreadFence(kSeqCst);
    waits_ = !own.writer.HasRoom(1);
  }

  bool has_copied_ = false;
  spsc::Entry<Format<1>> copied_{};
  bool wakes_writer_ = false;
  bool waits_ = false;
};

TEST_F(RoomTest, ASlotIsRefilledOnlyAfterItWasCopied) {
  EXPECT_EQ(Wrong(), 0u);
  EXPECT_GT(Wrong({}, false), 0u);
  EXPECT_GT(Wrong(Relaxed(kReader, &reader_.progress.taken)), 0u);
  EXPECT_GT(Wrong(WithoutFence(kReader, kAfterTake)), 0u);
  EXPECT_GT(Wrong(WithoutFence(kWriter, kBeforeWriterSleeps)), 0u);
}

// The completion of a failed unwaited request is in its queue before `served` passes the request.
class ServedTest : public testing::Test {
 protected:
  enum Thread : size_t { kClient, kDaemon };

  ServedTest() { Side<1>(client_, daemon_).writer.Write(kRequest); }

  uint64_t Wrong(const Weaker& weaker = {}) {
    uint64_t wrong = 0;
    Machine({[this] { Client(); }, [this] { Daemon(); }}, weaker).Explore([&] {
      wrong += is_served_ && !has_failure_ ? 1 : 0;
    });
    return wrong;
  }

  Page<1> client_;
  Page<1> daemon_;

 private:
  // The first step is QueuePages::served.
  void Client() {
    is_served_ = Load(daemon_.progress.served, kAcquire) != 0;
    has_failure_ = Side<1>(client_, daemon_).reader.HasEntry();
  }
  void Daemon() {
    Side<1> own(daemon_, client_);
    spsc::Entry<Format<1>> entry;
    if (own.reader.Copy(entry) == 0) return;
    own.writer.Write(kCompletion);
    own.reader.Take();
    own.reader.Serve();
  }

  bool is_served_ = false;
  bool has_failure_ = false;
};

TEST_F(ServedTest, AFailureIsVisibleWhenItsRequestCountsAsServed) {
  EXPECT_EQ(Wrong(), 0u);
  EXPECT_GT(Wrong(Relaxed(kDaemon, &daemon_.progress.served)), 0u);
  EXPECT_GT(Wrong(Relaxed(kClient, &daemon_.progress.served)), 0u);
}

// Two threads of one client: one announces its sleep and polls a last time; the other reads the completion and hands it
// over. Under one lock, reading and handing over are one step. The words of the process, `taken` and `handed_over`, and
// the steps on them are this test's own: a Reader has no words of that kind that the machine could see.
class ThreadsTest : public testing::Test {
 protected:
  uint64_t Wrong(bool under_lock) {
    uint64_t wrong = 0;
    const auto read = [=, this] {
      if (Load(daemon_.progress.head, kAcquire) == 0) return;
      Store(taken_, 1, kRelaxed);
      if (!under_lock) Store(handed_over_, 1, kRelease);
    };
    Machine({[this] { Complete(); }, read, [=, this] { Sleep(under_lock); }}).Explore([&] {
      wrong += sleeps_ && !wakes_client_ ? 1 : 0;
    });
    return wrong;
  }

 private:
  void Complete() {
    Side<1> own(daemon_, client_);
    own.writer.Write(kCompletion);
    wakes_client_ = own.doorbell.IsDue();
  }
  void Sleep(bool under_lock) {
    spsc::Doorbell(client_.progress, daemon_.progress).Announce();
    ThreadFence(kSeqCst);
    const bool is_empty = Load(daemon_.progress.head, kAcquire) == Load(taken_, kAcquire);
    sleeps_ = is_empty && Load(under_lock ? taken_ : handed_over_, kAcquire) == 0;
  }

  Page<1> client_;
  Page<1> daemon_;
  uint64_t taken_ = 0;
  uint64_t handed_over_ = 0;
  bool wakes_client_ = false;
  bool sleeps_ = false;
};

TEST_F(ThreadsTest, OneSleepsOnlyAfterALastPollUnderTheLock) {
  EXPECT_EQ(Wrong(true), 0u);
  EXPECT_GT(Wrong(false), 0u);
}

// The reader is woken by a doorbell that it consumes early, and goes to sleep. The writer does not repeat the doorbell
// for the same sleep, so the reader must store asleep = 0 before it consumes anything, and announce another sleep.
class WokenTest : public testing::Test {
 protected:
  WokenTest() {
    reader_.progress.asleep = 1;
    EXPECT_TRUE(rung_.IsDue());
  }

  uint64_t Wrong(bool wakes) {
    uint64_t wrong = 0;
    Machine({[=, this] { Read(wakes); }, [this] { Write(); }}).Explore([&] {
      wrong += !has_entry_ && !is_due_ ? 1 : 0;
    });
    return wrong;
  }

 private:
  void Read(bool wakes) {
    Side<1> own(reader_, writer_);
    if (wakes) own.doorbell.Wake();
    has_entry_ = own.reader.HasEntry();
    if (has_entry_ || !wakes) return;
    own.doorbell.Announce();
    ThreadFence(kSeqCst);
    has_entry_ = own.reader.HasEntry();
  }
  void Write() {
    Side<1>(writer_, reader_).writer.Write(kRequest);
    is_due_ = spsc::Doorbell(rung_).IsDue();
  }

  Page<1> reader_;
  Page<1> writer_;
  spsc::Doorbell rung_{writer_.progress, reader_.progress};  // that has rung for sleep 1
  bool has_entry_ = false;
  bool is_due_ = false;
};

TEST_F(WokenTest, ASideIsAwakeBeforeItReads) {
  EXPECT_EQ(Wrong(true), 0u);
  EXPECT_GT(Wrong(false), 0u);
}

}  // namespace
}  // namespace arraybridge
