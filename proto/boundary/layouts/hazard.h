// SPDX-License-Identifier: Apache-2.0
// The layout of a hazard page, and the protocol of the client and the broker on it. A page belongs to one session and
// to one namespace's catalogue. The client writes into it which records it reads; the broker only compares its words.
//
//   client                                    broker
//   1  state = live?                          1  state = dead
//   2  slot[i] = (slot, generation)           2  fence
//   3  fence                                  3  does any page name (slot, generation)?
//   4  state unchanged? else slot[i] = 0      4  no: the bytes may be used for something else
//
// One of the two fences comes first: either the client sees that the record is dead, or the broker sees the slot.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/boundary/layouts/catalogue.h"
#include "proto/boundary/shared_word.h"

namespace arraybridge::hazard {

inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kWords = 504;

struct Page {
  uint32_t high;     // shared: all slots at and above this index are 0
  uint32_t version;  // written by the broker before it exports the page
  std::array<uint32_t, 14> reserved;
  std::array<uint64_t, kWords> words;  // shared: 0, or the word of a held record
};
static_assert(sizeof(Page) == 4096 && offsetof(Page, words) == 64);

constexpr uint64_t WordOf(uint64_t slot, uint64_t generation) {
  return (slot + 1) << catalogue::kGenerationBits | generation;
}

// The parts that make the client's side right. A stress test leaves one out and sees the protocol fail.
struct Ordering {
  static void AfterHold() { ThreadFence(std::memory_order_seq_cst); }
  static constexpr bool kHolds = true;
};

// Client. The store synchronises with the broker's load of the slot: the client's reads of the record happen before its
// reuse.
inline void Clear(Page& page, uint32_t index) { Store(page.words[index], 0, std::memory_order_release); }

// Client. `seen` is the state that Find returned. True: the record and the bytes that it names stay unchanged until
// Clear. REQUIRES: slot `index` is 0, and only this process uses it.
template <class Order = Ordering>
bool Claim(Page& page, uint32_t index, uint64_t slot, uint64_t seen, const uint64_t& state) {
  if (index >= Load(page.high, std::memory_order_relaxed)) Store(page.high, index + 1, std::memory_order_relaxed);
  if constexpr (Order::kHolds) {
    Store(page.words[index], WordOf(slot, catalogue::GenerationOf(seen)), std::memory_order_release);
  }
  Order::AfterHold();
  if (Load(state, std::memory_order_acquire) == seen) return true;
  Clear(page, index);
  return false;
}

// Broker. After the fence every client that claims this record sees that it is dead; then the broker checks the pages.
inline void Retire(uint64_t& state) {
  const uint64_t generation = catalogue::GenerationOf(Load(state, std::memory_order_relaxed));
  Store(state, catalogue::StateOf(generation, catalogue::RecordState::kDead), std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
}

// Broker. Loads each word once and calls `visit` for every word that is not 0.
template <class Visit>
void ForEach(const Page& page, Visit visit) {
  const uint32_t high = std::min(Load(page.high, std::memory_order_acquire), kWords);
  for (uint32_t i = 0; i < high; ++i) {
    if (const uint64_t word = Load(page.words[i], std::memory_order_acquire); word != 0) visit(word);
  }
}

// Broker. Compares all words without a branch, two at a time, because the word is usually absent. x | -x has its
// highest bit set unless x is 0; x86-64 can test that for two words at once, but cannot compare two words at once.
inline bool Has(const Page& page, uint64_t word) {
  static_assert(kWords % 2 == 0 && offsetof(Page, words) % sizeof(WordPair) == 0);
  const uint32_t high = std::min(Load(page.high, std::memory_order_acquire), kWords);
  const WordPair wanted = {word, word};
  WordPair others = ~WordPair{};
  for (uint32_t i = 0; i < high; i += 2) {
    const WordPair differs = LoadPair(&page.words[i]) ^ wanted;
    others &= differs | -differs;
  }
  ThreadFence(std::memory_order_acquire);  // makes the relaxed loads above acquire loads
  return (others[0] & others[1]) >> 63 == 0;
}

}  // namespace arraybridge::hazard
