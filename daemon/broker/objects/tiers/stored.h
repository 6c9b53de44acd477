// SPDX-License-Identifier: Apache-2.0
// Stored names the file with a share's bytes. The file is removed with its last owner, so a share that is withdrawn
// leaves no file. A Rank says which shares leave memory first.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace arraybridge::daemon {

enum class Pin : uint8_t { kNone, kSoft, kHard };  // kSoft: leaves after all others; kHard: never
inline constexpr int32_t kPriorityMax = 1000;      // and -1000 is the least

// The order is the one in which shares leave memory.
struct Rank {
  Pin pin = Pin::kNone;
  int32_t priority = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;  // NOLINT(modernize-use-nullptr): its 0
};

// As records and files state it: the pin in the two lowest bits, above them the priority, counted from the least one;
// 0 is the rank of a share that was given none.
inline uint32_t NumberOf(const Rank& rank) {
  if (rank == Rank()) return 0;
  return static_cast<uint32_t>(rank.pin) | static_cast<uint32_t>(rank.priority + kPriorityMax) << 2;
}
// Any number, which a damaged file may state, has a rank.
inline Rank RankOf(uint32_t number) {
  if (number == 0) return {};
  const uint32_t priority = std::min(number >> 2, uint32_t{2 * kPriorityMax});
  return {static_cast<Pin>(std::min(number & 3, static_cast<uint32_t>(Pin::kHard))),
          static_cast<int32_t>(priority) - kPriorityMax};
}

struct Stored {
  std::string file;                   // in the directory of the tier; empty: it was damaged and is set aside
  bool durable = false;               // the file stays while the bytes are in memory, and after the broker
  std::shared_ptr<const void> owner;  // of the file; null until the directory is open
};

// Of a share that never had a file: empty, and false.
inline std::string_view FileOf(const std::unique_ptr<Stored>& stored) {
  return stored == nullptr ? std::string_view() : stored->file;
}
inline bool IsDurable(const std::unique_ptr<Stored>& stored) { return stored != nullptr && stored->durable; }

// As the journal names it. Null: the share has no file.
inline std::unique_ptr<Stored> StoredAs(std::string_view file, bool durable) {
  if (file.empty()) return nullptr;
  return std::make_unique<Stored>(Stored{std::string(file), durable, nullptr});
}

}  // namespace arraybridge::daemon
