// SPDX-License-Identifier: Apache-2.0
// The layout of a direct channel: a queue (spsc_queue.h) in which shares go from the one producer of a channel to its
// one consumer without a call. The producer writes a page, the consumer another, the broker a third, the control block;
// each maps the others' read-only. This file adds what a queue of two sides cannot express: the broker may revoke it,
// and memory comes back.
//
// The broker revokes a direct channel at any time, and puts the entries that were not taken into a queue of its own:
//
//   producer                    consumer                       broker
//   1  entry                    1  entry, copied               1  revoked = kRevoking
//   2  head (release)           2  taken (release)             2  fence
//   3  fence                    3  fence                       3  taken, head: the entries between them
//   4  revoked?                 4  revoked?                    4  counted = head, taken, revoked = kRevoked (release)
//
// One of two fences comes first: either the broker sees the entry, or that it was taken, or the end sees that the
// direct channel is revoked. Then the control block says which entries count: an entry up to `counted` was sent, one up
// to `taken` was received here, and those between them come by calls. No entry is lost, none comes twice. The fence is
// the one that precedes `asleep` (spsc_queue.h): an end loads both words after it.
//
// An entry names a range of an arena that the producer writes, and a bit of the return bitmap. The consumer flips the
// bit when it does not read the range any more; then the producer uses the range again.
//
//   producer, before it uses a slot or a range again            broker
//   1  seen = entries of which the consumer says it took them   1  revoked = kRevoking
//   2  fence                                                    2  fence
//   3  revoked? then it waits for the control block             3  entries before taken or seen are not queued
//
// A consumer that takes back its `taken` afterwards is too late: no other session gets what the producer has written
// there since.
//
// A consumer may publish what it received once more, without a copy, while it has not flipped the bit: it asks the
// broker, which sets the bit in `kept` of the control block before it answers. The producer uses a range again when its
// bit was flipped and is not kept; it loads `kept` after it has seen the flip, or that the consumer has gone. The
// broker clears the bit when no share uses the bytes any more.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "proto/boundary/layouts/spsc_queue.h"
#include "proto/boundary/shared_word.h"

namespace arraybridge::direct_channel {

inline constexpr uint32_t kVersion = 6;
inline constexpr uint64_t kCapacityMax = 1024;  // shares; a channel of more has no direct channel
inline constexpr uint32_t kReturnBits = 1024;   // ranges that the consumer has, or is to have, at a time
inline constexpr uint32_t kReturnWords = kReturnBits / 64;

// The head of an entry; the description follows.
struct Header {
  uint64_t description_bytes = 0;
  uint64_t arena = 0;
  uint64_t generation = 0;  // of the arena's number
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t bit = 0;      // of the return bitmap
  uint64_t time_ns = 0;  // when it was sent: CLOCK_BOOTTIME
};

// An entry is one slot, so that the broker and the channel's capacity count entries.
struct Format {
  static constexpr uint64_t kSlotWords = 32;
  static constexpr uint64_t kSlots = std::dynamic_extent;  // the channel's capacity
  static constexpr uint64_t kHeaderWords = sizeof(Header) / sizeof(uint64_t);
  static constexpr uint64_t kEntryWordsMax = kSlotWords;
  static constexpr uint64_t kDescriptionBytesMax = sizeof(uint64_t) * (kEntryWordsMax - kHeaderWords);

  static constexpr uint64_t WordsOf(uint64_t first_word) {
    return first_word > kDescriptionBytesMax ? 0 : WordsOfDescription(first_word);
  }
  static constexpr uint64_t WordsOfDescription(uint64_t bytes) { return kHeaderWords + (bytes + 7) / 8; }
};
using Entry = spsc::Entry<Format>;

// Written by the producer. The slots follow.
struct ProducerPage {
  spsc::Progress progress;
  alignas(128) uint64_t seen;  // shared: entries of which the consumer said that it took them
};

// Written by the consumer.
struct ConsumerPage {
  spsc::Progress progress;
  alignas(128) uint64_t calls;                               // shared: shares that it received by calls
  alignas(128) std::array<uint64_t, kReturnWords> returned;  // shared: the return bitmap
};
static_assert(offsetof(ProducerPage, progress) == 0 && offsetof(ConsumerPage, progress) == 0);

// The files that each end receives, in this order: the page that it writes, the other end's page, the control block, a
// pipe to read whose bytes wake this end, and a pipe to write that wakes the other end.
enum File : size_t { kOwn, kOther, kControl, kDoorbell, kOtherDoorbell, kFiles };

enum Revoked : uint64_t { kStands = 0, kRevoking = 1, kRevoked = 2 };
enum Decided : uint64_t { kNotDecided = 0, kPossible = 1, kImpossible = 2 };

// Written by the broker.
struct ControlBlock {
  uint32_t version;
  uint32_t return_bits;
  uint64_t capacity;
  uint64_t number;   // the broker's name for this direct channel; never 0, never another's
  uint64_t opened;   // shared: not 0: both ends have mapped it
  uint64_t calls;    // shared: shares that the consumer receives by calls, before the entries that it then finds
  uint64_t revoked;  // shared: a Revoked
  uint64_t counted;  // entries that were sent; valid with kRevoked, as the next
  uint64_t taken;    // entries that were received here
  uint64_t gone;     // shared: not 0: the consumer's session has ended, and reads no range any more
  // Valid with `opened`: entry n, from 1, has the sequence `sequence` + n + shares that the consumer received by calls.
  uint64_t sequence;
  uint64_t stream;                          // of all entries
  std::array<uint64_t, kReturnWords> kept;  // shared: by return bit: shares of the broker use the range
  // A Decided, for the broker's next process: `counted` and `taken` are final, although it has not been revoked yet.
  uint64_t decided;
};

constexpr uint64_t BytesOfProducerPage(uint64_t capacity) {
  return sizeof(ProducerPage) + capacity * Format::kSlotWords * sizeof(uint64_t);
}
inline spsc::Slots<Format> SlotsOf(ProducerPage& page, uint64_t capacity) {
  return {reinterpret_cast<uint64_t*>(&page + 1), capacity * Format::kSlotWords};
}
inline spsc::ReadSlots<Format> SlotsOf(const ProducerPage& page, uint64_t capacity) {
  return {reinterpret_cast<const uint64_t*>(&page + 1), capacity * Format::kSlotWords};
}

inline Header HeaderOf(const Entry& entry) {
  return {entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6]};
}
// REQUIRES: the entry was copied from a queue, which checks its length.
inline std::string_view DescriptionOf(const Entry& entry) {
  return {reinterpret_cast<const char*>(entry.data() + Format::kHeaderWords), entry[0]};
}

// Fills `entry`, and returns its length in words. REQUIRES: description.size() <= kDescriptionBytesMax.
inline uint64_t Encode(Header header, std::string_view description, Entry& entry) {
  header.description_bytes = description.size();
  const uint64_t words = Format::WordsOfDescription(description.size());
  entry[words - 1] = 0;
  std::memcpy(entry.data(), &header, sizeof header);
  if (!description.empty()) std::memcpy(entry.data() + Format::kHeaderWords, description.data(), description.size());
  return words;
}

// An end, after the fence that follows its count. False: the control block says what counts, or will.
inline bool Stands(const ControlBlock& control) { return Load(control.revoked, std::memory_order_acquire) == kStands; }

// Producer: from now on it may use the slots and ranges of so many entries again, if the direct channel stands.
inline bool StoreSeen(ProducerPage& page, uint64_t seen, const ControlBlock& control) {
  Store(page.seen, seen, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  return Stands(control);
}

// Consumer, on any thread: it does not read the range of this bit any more.
inline void Return(ConsumerPage& page, uint64_t bit) {
  std::atomic_ref<uint64_t>(page.returned[bit / 64]).fetch_xor(uint64_t{1} << bit % 64, std::memory_order_release);
}

// Broker, one thread at a time: shares use the range of this bit, or no share does any more.
inline void Keep(ControlBlock& control, uint64_t bit, bool kept) {
  uint64_t& word = control.kept[bit / 64];
  const uint64_t mask = uint64_t{1} << bit % 64;
  const uint64_t now = Load(word, std::memory_order_relaxed);
  Store(word, kept ? now | mask : now & ~mask, std::memory_order_release);
}
// Producer: those of these ranges that it may use again. REQUIRES: their bits were seen to be flipped, or the
// consumer's end was.
inline uint64_t NotKept(const ControlBlock& control, uint32_t word, uint64_t bits) {
  return bits & ~Load(control.kept[word], std::memory_order_acquire);
}

// Broker, to revoke. From the fence on each end sees that the direct channel is revoked; then load how far they are.
inline void BeginRevoke(ControlBlock& control) {
  Store(control.revoked, kRevoking, std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
}
// `taken` first: an honest consumer's never passes a head that is loaded later. A consumer that takes back its `taken`
// changes nothing about what its producer has seen.
inline void LoadCounts(const ProducerPage& producer, const ConsumerPage& consumer, uint64_t* head, uint64_t* taken) {
  *taken = Load(consumer.progress.taken, std::memory_order_acquire);
  *taken = std::max(*taken, Load(producer.seen, std::memory_order_acquire));
  *head = Load(producer.progress.head, std::memory_order_acquire);
}
// The counts that EndRevoke will publish. `possible`: the ends may have counted so.
inline void Decide(ControlBlock& control, uint64_t counted, uint64_t taken, bool possible) {
  Store(control.counted, counted, std::memory_order_relaxed);
  Store(control.taken, taken, std::memory_order_relaxed);
  Store(control.decided, static_cast<uint64_t>(possible ? kPossible : kImpossible), std::memory_order_release);
}
inline void EndRevoke(ControlBlock& control) { Store(control.revoked, kRevoked, std::memory_order_release); }

}  // namespace arraybridge::direct_channel
