// SPDX-License-Identifier: Apache-2.0
// A queue of entries in shared memory that one process writes and another process reads. Two of them, one in each
// direction, connect two sides: each side writes its own page and maps the other side's page read-only. A page holds
// the slots of its side's queue and its side's Progress: how many of its own slots the side has filled, how many of the
// other side's slots it has copied, and whether it sleeps. An entry occupies one or more slots.
//
//   writer                                    reader                             a side before it sleeps
//   1  room? other's taken (acquire)          1  other's head (acquire)          1  asleep = number of this sleep
//   2  the entry's words                      2  each word once, into a copy     2  fence
//   3  head (release)                         3  taken (release)                 3  other's head and taken: is there
//   4  fence                                  4  serves the entry; served           an entry, is there room?
//   5  other's asleep: doorbell, once            (release)                          then asleep = 0, no sleep
//      for each sleep                         5  fence; other's asleep: doorbell
//
// One of the two fences comes first: either the side that goes to sleep sees the entry (or the room), or the other side
// sees that it sleeps. The doorbell is a frame or a byte outside of these pages; it carries no data. A side that was
// woken stores asleep = 0 before it reads anything, because a doorbell is sent only once for each sleep.
//
// Words of the other side's page are untrusted: an impossible count breaks the queue.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/boundary/shared_word.h"

namespace arraybridge::spsc {

// The counts do not wrap within 500 years.
struct Progress {
  alignas(128) uint64_t head;    // shared: total slots that this side has filled in its own queue
  alignas(128) uint64_t taken;   // shared: total slots of the other side's queue that were copied and may be refilled
  uint64_t served;               // shared: the part of `taken` whose entries have been served
  alignas(128) uint64_t asleep;  // shared: 0, or the number of the sleep from which this side must be woken
};
static_assert(sizeof(Progress) == 384);

// A Format defines kSlotWords, kSlots (std::dynamic_extent: each queue has its own number), kEntryWordsMax, and
// WordsOf(first word): the length of an entry in words, or 0 if the first word is malformed.
template <class Format>
constexpr size_t QueueWords() {
  if (Format::kSlots == std::dynamic_extent) return std::dynamic_extent;
  return Format::kSlotWords * Format::kSlots;
}
template <class Format>
using Slots = std::span<uint64_t, QueueWords<Format>()>;
template <class Format>
using ReadSlots = std::span<const uint64_t, QueueWords<Format>()>;
template <class Format>
using Entry = std::array<uint64_t, Format::kEntryWordsMax>;  // a copy that the writer cannot change

template <class Format>
constexpr uint64_t SlotsOf(uint64_t words) {
  return (words + Format::kSlotWords - 1) / Format::kSlotWords;
}

// The word at which the slot with this count begins, and the word behind a word of an entry.
template <class Format>
constexpr uint64_t BeginOf(uint64_t count, uint64_t queue_words) {
  return count % (queue_words / Format::kSlotWords) * Format::kSlotWords;
}
template <class Format>
constexpr uint64_t Next(uint64_t at, uint64_t queue_words) {
  if constexpr (Format::kEntryWordsMax <= Format::kSlotWords) return at + 1;  // an entry does not wrap
  return (at + 1) % queue_words;
}

// Copies the entry that begins with the slot of this count, and loads each word once. Returns its length in words; 0:
// the first word is malformed.
template <class Format>
uint64_t CopyEntry(ReadSlots<Format> slots, uint64_t count, Entry<Format>& entry) {
  uint64_t at = BeginOf<Format>(count, slots.size());
  entry[0] = Load(slots[at], std::memory_order_relaxed);
  const uint64_t words = Format::WordsOf(entry[0]);
  if (words > entry.size()) return 0;
  for (uint64_t i = 1; i < words; ++i) {
    at = Next<Format>(at, slots.size());
    entry[i] = Load(slots[at], std::memory_order_relaxed);
  }
  return words;
}

// Not thread-safe, except filled() and MayHaveRoom().
template <class Format>
class Writer {
 public:
  Writer(Progress& own, Slots<Format> slots, const Progress& other) : own_(own), slots_(slots), other_(other) {}

  // Whether an entry of `slots` slots fits now. Always false once the queue is broken().
  bool HasRoom(uint64_t slots) {
    const uint64_t filled = filled_.load(std::memory_order_relaxed);
    if (filled + slots - taken_ <= capacity()) return !broken_;
    taken_ = Load(other_.taken, std::memory_order_acquire);
    ThreadFence(std::memory_order_release);  // for MayHave: where it reads a new word, it finds that the old was taken
    broken_ = broken_ || taken_ > filled || filled - taken_ > capacity();
    return !broken_ && filled + slots - taken_ <= capacity();
  }
  // Makes the entry visible to the reader; then the Doorbell may be due. REQUIRES: HasRoom; the first word states the
  // length.
  void Write(std::span<const uint64_t> entry) {
    const uint64_t filled = filled_.load(std::memory_order_relaxed);
    uint64_t at = BeginOf<Format>(filled, slots_.size());
    for (const uint64_t word : entry) {
      Store(slots_[at], word, std::memory_order_relaxed);
      at = Next<Format>(at, slots_.size());
    }
    const uint64_t now = filled + SlotsOf<Format>(entry.size());
    filled_.store(now, std::memory_order_relaxed);
    Store(own_.head, now, std::memory_order_release);
  }
  // Continues a queue that another process of this side wrote. The page is this side's own.
  void Continue() {
    filled_.store(Load(own_.head, std::memory_order_relaxed), std::memory_order_relaxed);
    taken_ = Load(other_.taken, std::memory_order_acquire);
    const uint64_t filled = this->filled();
    broken_ = taken_ > filled || filled - taken_ > capacity();
  }
  // On any thread; writes nothing. Whether there may be room for `slots` slots.
  bool MayHaveRoom(uint64_t slots) const {
    return filled() + slots - Load(other_.taken, std::memory_order_acquire) <= capacity();
  }
  // On any thread: the total number of filled slots.
  uint64_t filled() const { return filled_.load(std::memory_order_relaxed); }
  // Slots that the reader had copied when HasRoom last asked it.
  uint64_t taken() const { return taken_; }
  // True after the reader has counted slots that were never filled.
  bool broken() const { return broken_; }

 private:
  uint64_t capacity() const { return slots_.size() / Format::kSlotWords; }

  Progress& own_;
  const Slots<Format> slots_;
  const Progress& other_;
  std::atomic<uint64_t> filled_{0};
  uint64_t taken_ = 0;  // the reader's count when it was last read
  bool broken_ = false;
};

// Not thread-safe, except HasEntry and MayHave.
template <class Format>
class Reader {
 public:
  Reader(Progress& own, const Progress& other, ReadSlots<Format> slots) : own_(own), other_(other), slots_(slots) {}

  // On any thread; loads one shared word.
  bool HasEntry() const {
    return Load(other_.head, std::memory_order_acquire) != taken_.load(std::memory_order_acquire);
  }
  // On any thread: whether `is` returns true for the first word of an entry that has not been taken. Looks at `most`
  // entries; true as well if there are more, or if entries are taken meanwhile.
  template <class Is>
  bool MayHave(const Is& is, int most) const {
    const uint64_t taken = taken_.load(std::memory_order_acquire);
    const uint64_t head = Load(other_.head, std::memory_order_acquire);
    for (uint64_t at = taken; at != head;) {
      const uint64_t first = Load(slots_[BeginOf<Format>(at, slots_.size())], std::memory_order_relaxed);
      if (most-- == 0 || is(first)) return true;
      at += SlotsOf<Format>(Format::WordsOf(first));
    }
    ThreadFence(std::memory_order_acquire);
    return taken_.load(std::memory_order_relaxed) != taken;
  }
  // Copies the next entry and returns its length in words; 0 if there is no entry or the queue is broken().
  uint64_t Copy(Entry<Format>& entry) {
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    if (head_ == taken) head_ = Load(other_.head, std::memory_order_acquire);
    const uint64_t there = head_ - taken;
    if (there == 0 || broken_) return 0;
    const uint64_t words = CopyEntry<Format>(slots_, taken, entry);
    broken_ = there > slots_.size() / Format::kSlotWords || words == 0 || SlotsOf<Format>(words) > there;
    if (broken_) return 0;
    copied_ = SlotsOf<Format>(words);
    return words;
  }
  // Allows the writer to refill the slots of the copied entry. REQUIRES: Copy returned its length.
  void Take() {
    Advance();
    Show(taken());
  }
  // Take in two steps: Copy returns the entries behind the copied one from now on, and the writer may refill its slots
  // once Show has passed them.
  void Advance() { taken_.store(taken() + copied_, std::memory_order_release); }
  void Show(uint64_t taken) { Store(own_.taken, taken, std::memory_order_release); }
  // Continues to read for a side that another process was. The page is this side's own.
  void Continue() { taken_.store(head_ = Load(own_.taken, std::memory_order_relaxed), std::memory_order_relaxed); }
  // Every entry that was taken has been served, and its completions are in this side's queue.
  void Serve() { Store(own_.served, taken_.load(std::memory_order_relaxed), std::memory_order_release); }
  uint64_t taken(std::memory_order order = std::memory_order_relaxed) const { return taken_.load(order); }
  // Slots of the entry that Copy has returned.
  uint64_t copied() const { return copied_; }
  // True after the writer has filled more slots than there are, or a malformed entry.
  bool broken() const { return broken_; }

 private:
  Progress& own_;
  const Progress& other_;
  const ReadSlots<Format> slots_;
  std::atomic<uint64_t> taken_{0};
  uint64_t head_ = 0;    // the writer's count when it was last read
  uint64_t copied_ = 0;  // slots of the copied entry
  bool broken_ = false;
};

// After a store for which a side may sleep: the number of its sleep; 0: it is awake, and finds what was stored.
inline uint64_t SleepOf(const Progress& side) {
  ThreadFence(std::memory_order_seq_cst);
  return Load(side.asleep, std::memory_order_relaxed);
}

// A Doorbell announces that its side sleeps, and tells when the other side must be woken. IsDue and Repeat must be
// called by one thread at a time, and so must Announce and Wake.
class Doorbell {
 public:
  // A page that states from the start that its side sleeps makes a writer that comes earlier wake it.
  Doorbell(Progress& own, const Progress& other)
      : own_(own), other_(other), sleep_(Load(own.asleep, std::memory_order_relaxed)) {}

  // Call it after Write, Take or Serve. Whether the other side must be woken; true once for each of its sleeps.
  bool IsDue() {
    const uint64_t sleep = SleepOf(other_);
    if (sleep == 0 || sleep == rung_) return false;
    rung_ = sleep;
    return true;
  }
  // Call it if the doorbell could not be sent: IsDue then returns true again for this sleep.
  void Repeat() { rung_ = 0; }

  // Going to sleep takes three steps, so that a side with many queues needs one fence: announce the sleep in each
  // queue, execute a fence, and check each queue.
  void Announce() { Store(own_.asleep, ++sleep_, std::memory_order_relaxed); }
  void Wake() { Store(own_.asleep, 0, std::memory_order_relaxed); }
  // Continues for a side that another process was. The other side compares the numbers of sleeps, so they must be new:
  // `last` is greater than all numbers of before.
  void Continue(uint64_t last) { sleep_ = last; }

 private:
  Progress& own_;
  const Progress& other_;
  uint64_t sleep_;
  uint64_t rung_ = 0;  // the last sleep of the other side for which a doorbell was due
};

}  // namespace arraybridge::spsc
