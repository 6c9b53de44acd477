// The layout of a publish ring and of its Bell, and the steps that a client and the broker take on them. Both are one
// session's. The client writes the ring: each entry is a PublishRequest, as a frame would bring it. The broker writes
// the Bell: how far it has come, what became of each entry, and whether it has to be woken.
//
//   client                                    broker, before it sleeps
//   1  entry                                  1  asleep = number of this sleep
//   2  head = head + 1 (release)              2  fence
//   3  fence                                  3  head == tail? else it does not sleep
//   4  asleep? then wake it, once a sleep
//
// One of the two fences comes first: either the broker sees the entry, or the client sees that it sleeps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "proto/boundary/shared_word.h"

namespace arraybridge::ring {

inline constexpr uint32_t kVersion = 1;
inline constexpr uint64_t kEntries = 256;
inline constexpr size_t kEntryWords = 16;
inline constexpr size_t kMessageBytesMax = sizeof(uint64_t) * kEntryWords - sizeof(uint16_t);
inline constexpr size_t kReasonBytesMax = 28;  // longer ones are cut

// Words are shared. The first two bytes are the message's length.
struct alignas(128) Entry {
  std::array<uint64_t, kEntryWords> words;
};

// Written by the client. head counts all entries that ever were.
struct alignas(128) Page {
  uint64_t head;     // shared
  uint32_t version;  // written by the broker before anybody else has the page
  std::array<Entry, kEntries> entries;
};
static_assert(sizeof(Page) == 128 + 128 * kEntries && offsetof(Page, entries) == 128);

// What became of an entry, from the moment that tail has passed it until the client uses its place again.
struct Outcome {
  uint32_t code;  // a Code; 0: it is published
  std::array<char, kReasonBytesMax> reason;

  std::string_view because() const {
    return {reason.data(), static_cast<size_t>(std::find(reason.begin(), reason.end(), '\0') - reason.begin())};
  }
};

// Written by the broker.
struct alignas(64) Bell {
  uint64_t tail;    // shared: so many entries have been taken
  uint64_t asleep;  // shared: 0, or the number of the sleep from which the broker has to be woken
  uint32_t version;
  alignas(64) std::array<Outcome, kEntries> outcomes;
};
static_assert(sizeof(Bell) == 64 + 32 * kEntries && offsetof(Bell, outcomes) == 64);

using Message = std::array<uint64_t, kEntryWords>;  // a copy that nobody else writes

constexpr size_t WordsOf(size_t message_bytes) {
  return (sizeof(uint16_t) + message_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

// Client. REQUIRES: the message has at most kMessageBytesMax bytes, and the broker has taken the entry.
inline void Write(Entry& entry, std::string_view message) {
  Message words;
  const size_t count = WordsOf(message.size());
  words[count - 1] = 0;
  const auto length = static_cast<uint16_t>(message.size());
  std::memcpy(words.data(), &length, sizeof length);
  std::memcpy(reinterpret_cast<char*>(words.data()) + sizeof length, message.data(), message.size());
  for (size_t i = 0; i < count; ++i) Store(entry.words[i], words[i], std::memory_order_relaxed);
}

// Broker. Each word is loaded once, whatever the client does meanwhile; the message lies in `copy`. Nothing: it says
// that it is longer than an entry.
inline std::optional<std::string_view> Read(const Entry& entry, Message& copy) {
  copy[0] = Load(entry.words[0], std::memory_order_relaxed);
  const auto length = static_cast<uint16_t>(copy[0]);
  if (length > kMessageBytesMax) return std::nullopt;
  for (size_t i = 1; i < WordsOf(length); ++i) copy[i] = Load(entry.words[i], std::memory_order_relaxed);
  return std::string_view(reinterpret_cast<const char*>(copy.data()) + sizeof length, length);
}

// Client: everything written before belongs to the first `head` entries. Not 0: the sleep from which the broker has to
// be woken.
inline uint64_t Enter(Page& page, uint64_t head, const Bell& bell) {
  Store(page.head, head, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  return Load(bell.asleep, std::memory_order_relaxed);
}

// Broker: false: there is something to take, so it must not sleep.
inline bool FallAsleep(Bell& bell, uint64_t sleep, const Page& page, uint64_t tail) {
  Store(bell.asleep, sleep, std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
  return Load(page.head, std::memory_order_relaxed) == tail;
}

}  // namespace arraybridge::ring
