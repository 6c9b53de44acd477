// The layout of a direct channel, and the steps that its two ends and the broker take on it. A direct channel is how shares go from the one
// sender of a channel to its one receiver without a call. The sender writes one page, the receiver another, the broker
// a third, the control block; each maps the others' read-only.
//
//   sender                      receiver                       broker, to end the direct channel
//   1  entry                    1  entry                       1  revoked = ending
//   2  head + 1 (release)       2  tail + 1 (release)          2  fence
//   3  fence                    3  fence                       3  tail, head: what lies between goes into its queue
//   4  revoked?                 4  revoked?                    4  counted = head, taken = tail, revoked = ended
//   (release)
//
// Of two fences one comes first: either the broker sees the entry, or that it was taken, or the end sees that the direct channel
// ends. Who sees that asks the control block what counted: an entry up to `counted` was sent, one up to `taken` was received,
// and what lies between comes by calls. Nothing is lost, nothing comes twice.
//
//   who waits                   the other end, after 3 above
//   1  asleep = its sleep       4  asleep? then the doorbell, once a sleep
//   2  fence
//   3  still nothing? sleep
//
// An entry names a range of an arena that the sender writes. The sender carves it anew when the receiver has flipped
// the bit of the entry's slot, which says that it reads it no more.
//
//   sender, before it writes a place or carves a range anew     broker, to end the direct channel
//   1  seen = entries that the tail says were taken             1  revoked = ending
//   2  fence                                                    2  fence
//   3  revoked? then it waits for what the control block says            3  what lies behind tail and seen is not queued
//
// A receiver that says later that it has not taken them is too late: nobody else gets what is written there since.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "proto/boundary/shared_word.h"

namespace arraybridge::direct_channel {

inline constexpr uint32_t kVersion = 2;
inline constexpr uint64_t kCapacityMax = 1024;  // shares; a channel of more has no direct channel
inline constexpr uint32_t kSlots = 1024;        // shares that the receiver has, or is to have, at a time
inline constexpr uint32_t kDoneWords = kSlots / 64;
inline constexpr size_t kHeadWords = 6;
inline constexpr size_t kEntryWords = 32;
inline constexpr size_t kDescriptionBytesMax = sizeof(uint64_t) * (kEntryWords - kHeadWords);

// Words are shared: length of the description, arena, its generation, offset, size, slot; the description.
struct alignas(64) Entry {
  std::array<uint64_t, kEntryWords> words;
};

// Written by the sender. The entries follow.
struct ProducerPage {
  alignas(64) uint64_t head;    // shared: entries that ever were
  uint64_t seen;                // shared: of these, so many were taken: their places and ranges may be others' by now
  alignas(64) uint64_t asleep;  // shared: 0, or the number of the sleep in which it waits for room
};
static_assert(sizeof(ProducerPage) == 128);

// Written by the receiver.
struct ConsumerPage {
  alignas(64) uint64_t tail;                          // shared: entries that ever were taken
  uint64_t calls;                                     // shared: shares that it received by calls
  alignas(64) uint64_t asleep;                        // shared: 0, or the number of the sleep in which it waits
  alignas(64) std::array<uint64_t, kDoneWords> done;  // shared: a bit a slot
};
static_assert(sizeof(ConsumerPage) == 256);

enum Revoked : uint64_t { kStands = 0, kEnding = 1, kEnded = 2 };

// Written by the broker.
struct ControlBlock {
  uint32_t version;
  uint32_t slots;
  uint64_t capacity;
  uint64_t number;   // the broker's name for this direct channel; never 0, never another's
  uint64_t opened;   // shared: not 0: both ends have mapped it
  uint64_t calls;    // shared: shares that the receiver gets by calls, before what stands on the direct channel when it looks
  uint64_t revoked;  // shared: a Revoked
  uint64_t counted;  // entries that were sent; told by kEnded, as the next
  uint64_t taken;    // entries that were received on the direct channel
  uint64_t gone;     // shared: not 0: who received has gone, and reads nothing of it any more
};

constexpr uint64_t BytesOfProducerPage(uint64_t capacity) { return sizeof(ProducerPage) + capacity * sizeof(Entry); }

inline Entry* EntriesOf(ProducerPage& page) { return reinterpret_cast<Entry*>(&page + 1); }
inline const Entry* EntriesOf(const ProducerPage& page) { return reinterpret_cast<const Entry*>(&page + 1); }

// What an entry says; a copy, each of whose words was loaded once, whatever the sender does meanwhile.
struct Message {
  uint64_t arena = 0;
  uint64_t generation = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t slot = 0;
  uint64_t description_bytes = 0;
  std::array<uint64_t, kEntryWords - kHeadWords> description;

  std::string_view text() const { return {reinterpret_cast<const char*>(description.data()), description_bytes}; }
};

// Whether so many entries can have been sent, and of these so many taken. No counter ever wraps: not in 500 years.
constexpr bool CanBe(uint64_t head, uint64_t tail, uint64_t capacity) {
  return tail <= head && head - tail <= capacity;
}

constexpr size_t WordsOf(uint64_t bytes) { return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t); }

// Sender. REQUIRES: the description has at most kDescriptionBytesMax bytes; the receiver has taken the entry.
inline void Write(Entry& entry, const Message& said, std::string_view description) {
  const std::array<uint64_t, kHeadWords> head{description.size(), said.arena, said.generation,
                                              said.offset,        said.size,  said.slot};
  for (size_t i = 0; i < kHeadWords; ++i) Store(entry.words[i], head[i], std::memory_order_relaxed);
  for (size_t i = 0; i < WordsOf(description.size()); ++i) {
    uint64_t word = 0;
    const std::string_view bytes = description.substr(i * sizeof word, sizeof word);
    std::memcpy(&word, bytes.data(), bytes.size());
    Store(entry.words[kHeadWords + i], word, std::memory_order_relaxed);
  }
}

// Nothing: it says that it is longer than an entry, or has a slot that cannot be.
inline std::optional<Message> Read(const Entry& entry) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Message message;
  message.description_bytes = Load(entry.words[0], kRelaxed);
  message.arena = Load(entry.words[1], kRelaxed);
  message.generation = Load(entry.words[2], kRelaxed);
  message.offset = Load(entry.words[3], kRelaxed);
  message.size = Load(entry.words[4], kRelaxed);
  message.slot = Load(entry.words[5], kRelaxed);
  if (message.description_bytes > kDescriptionBytesMax || message.slot >= kSlots) return std::nullopt;
  for (size_t i = 0; i < WordsOf(message.description_bytes); ++i) {
    message.description[i] = Load(entry.words[kHeadWords + i], kRelaxed);
  }
  return message;
}

// An end has written an entry, or read one: `count` are all until now. Not kStands: the control block says whether it counted.
inline uint64_t Pass(uint64_t& word, uint64_t count, const ControlBlock& control) {
  Store(word, count, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  return Load(control.revoked, std::memory_order_acquire);
}

// Who waits. From now on the other end rings; then look once more.
inline void FallAsleep(uint64_t& asleep, uint64_t sleep) {
  Store(asleep, sleep, std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
}

// Broker. From the fence on each end sees that the direct channel ends; then look how far they have come.
inline void Revoke(ControlBlock& control) {
  Store(control.revoked, kEnding, std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
}

inline void End(ControlBlock& control, uint64_t counted, uint64_t taken) {
  Store(control.counted, counted, std::memory_order_relaxed);
  Store(control.taken, taken, std::memory_order_relaxed);
  Store(control.revoked, kEnded, std::memory_order_release);
}

// Receiver, on any thread: it reads nothing of the slot any more.
inline void Flip(ConsumerPage& page, uint64_t slot) {
  std::atomic_ref<uint64_t>(page.done[slot / 64]).fetch_xor(uint64_t{1} << slot % 64, std::memory_order_release);
}

}  // namespace arraybridge::direct channel
