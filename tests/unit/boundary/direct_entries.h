// SPDX-License-Identifier: Apache-2.0
// Entries of a direct channel as a test writes and takes them, honestly or not: at the counts that the pages say.
#pragma once

#include <string_view>

#include "proto/boundary/layouts/direct_channel.h"

namespace arraybridge::direct_channel {

// The first word of the entry with this count.
inline uint64_t* EntryAt(ProducerPage& page, uint64_t capacity, uint64_t count) {
  return &SlotsOf(page, capacity)[count % capacity * Format::kSlotWords];
}

inline void WriteEntry(ProducerPage& page, uint64_t capacity, const Header& header, std::string_view description) {
  Entry entry;
  const uint64_t words = Encode(header, description, entry);
  const uint64_t head = Load(page.progress.head, std::memory_order_relaxed);
  uint64_t* const at = EntryAt(page, capacity, head);
  for (uint64_t i = 0; i < words; ++i) Store(at[i], entry[i], std::memory_order_relaxed);
  Store(page.progress.head, head + 1, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
}

inline void TakeEntry(ConsumerPage& page) {
  Store(page.progress.taken, Load(page.progress.taken, std::memory_order_relaxed) + 1, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
}

}  // namespace arraybridge::direct_channel
