// SPDX-License-Identifier: Apache-2.0
// Figures are what a process tells of the arrays that its frameworks made since its session was opened: those that were
// born in broker memory, and those that found none, which a put copies. They are words of the page of requests that the
// process alone writes, and that the daemon reads when a user asks. Nothing else depends on them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "proto/boundary/shared_word.h"

namespace arraybridge::born {

// Their places are part of the layout: a new one needs a place of its own.
inline constexpr std::array<std::string_view, 7> kFrameworks = {"numpy", "torch", "jax",      "pyarrow",
                                                                "cupy",  "numba", "cuda.core"};
inline constexpr std::array<std::string_view, 4> kReasons = {"no_room", "refused", "zeros", "child"};

// The place of a name. Nothing: it is none of them.
template <size_t kNames>
std::optional<size_t> PlaceOf(const std::array<std::string_view, kNames>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

struct Figures {
  uint64_t arrays = 0;                               // that were born
  std::array<uint64_t, kFrameworks.size()> bytes{};  // of these, by kFrameworks
  uint64_t missed_bytes = 0;                         // of those that found no memory of the broker
  std::array<uint32_t, kReasons.size()> missed{};    // their number, by kReasons; the largest number: as many or more

  bool operator==(const Figures&) const = default;
};
inline constexpr size_t kWireBytesMax = 28 * (2 + kFrameworks.size() + kReasons.size());  // of a BornInfo
static_assert(sizeof(Figures) == 88 && offsetof(Figures, missed) == 72);

// A copy of figures that another process writes.
inline Figures Read(const Figures& shared) {
  Figures copy{.arrays = Load(shared.arrays, std::memory_order_relaxed),
               .missed_bytes = Load(shared.missed_bytes, std::memory_order_relaxed)};
  for (size_t i = 0; i < copy.bytes.size(); ++i) copy.bytes[i] = Load(shared.bytes[i], std::memory_order_relaxed);
  for (size_t i = 0; i < copy.missed.size(); ++i) copy.missed[i] = Load(shared.missed[i], std::memory_order_relaxed);
  return copy;
}

// The figures of a session's queue; zeros without one.
template <class Queue>
Figures Of(const Queue& queue) {
  return queue == nullptr ? Figures{} : queue->born();
}

// One thread at a time.
inline void Add(Figures& shared, const Figures& more) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto add = [](uint64_t& word, uint64_t number) {
    Store(word, Load(word, std::memory_order_relaxed) + number, std::memory_order_relaxed);
  };
  add(shared.arrays, more.arrays);
  add(shared.missed_bytes, more.missed_bytes);
  for (size_t i = 0; i < more.bytes.size(); ++i) add(shared.bytes[i], more.bytes[i]);
  for (size_t i = 0; i < more.missed.size(); ++i) {
    const uint64_t sum = uint64_t{Load(shared.missed[i], std::memory_order_relaxed)} + more.missed[i];
    Store(shared.missed[i], static_cast<uint32_t>(std::min(sum, kMost)), std::memory_order_relaxed);
  }
}

}  // namespace arraybridge::born
