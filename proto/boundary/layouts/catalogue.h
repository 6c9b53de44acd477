// SPDX-License-Identifier: Apache-2.0
// The layout of a Catalogue: a table of a namespace's shares in one memfd that the broker writes and clients map
// read-only. It holds a header, an array of records, and hash indexes of growing size, each used once.
// docs/explanation/fast-path.md describes the protocol.
//
// A record goes free → writing → live → dead → writing ... The generation grows with every share, so a state identifies
// its share. The broker reuses a record, and the bytes that it names, only when it is dead and no hazard page holds it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "proto/boundary/shared_word.h"
#include "proto/boundary/siphash.h"

namespace arraybridge::catalogue {

inline constexpr uint64_t kMagic = 0x3147544341425241;  // "ARBACTG1" in memory
inline constexpr uint32_t kVersion = 1;
inline constexpr uint64_t kHeaderBytes = 4096;
inline constexpr uint64_t kSlotsMax = (uint64_t{1} << 26) - 2;
inline constexpr unsigned kGenerationBits = 38;
inline constexpr uint64_t kGenerationMax = (uint64_t{1} << kGenerationBits) - 1;  // then its slot is not reused
inline constexpr unsigned kIndexBitsMin = 7;
inline constexpr unsigned kProbesMax = 64;  // a name without a place within these probes is found by a call
inline constexpr unsigned kRetriesMax = 64;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t record_bytes;
  SipKey key;  // for the hashes of names
  uint64_t capacity;
  uint64_t records_offset;
  uint64_t index_bits;  // shared: log2 of the number of words in the current index
  uint64_t closed;      // shared: not 0: the catalogue is closed; ask for the current one
  std::array<uint8_t, 16> broker_id;
};
static_assert(sizeof(Header) == 80 && offsetof(Header, index_bits) == 48);

enum class RecordState : uint64_t { kFree = 0, kWriting = 1, kLive = 2, kDead = 3 };

inline constexpr size_t kDescriptionWords = 8;
inline constexpr size_t kDescriptionBytesMax = sizeof(uint64_t) * kDescriptionWords - sizeof(uint16_t);
inline constexpr uint16_t kNoDescription = 0xFFFF;  // too long for the record: ask by a call

// All words are shared.
struct alignas(128) Record {
  uint64_t state;  // generation << 2 | RecordState
  uint64_t hash_low;
  uint64_t hash_high;
  uint64_t place;  // arena << 16 | flags
  uint64_t offset;
  uint64_t size;
  uint64_t share;                                       // the share's id
  uint64_t share_generation;                            // generation of the name, as in answers; not the record's
  std::array<uint64_t, kDescriptionWords> description;  // two bytes of length, then the description
};
static_assert(sizeof(Record) == 128);

inline constexpr uint64_t kFlagEnforced = 1;  // the kernel refuses every write to the share's bytes
inline constexpr uint64_t kFlagUnnamed = 2;   // the broker chose the share's name
inline constexpr unsigned kFlagBits = 16;

constexpr uint64_t StateOf(uint64_t generation, RecordState state) {
  return generation << 2 | static_cast<uint64_t>(state);
}
constexpr uint64_t GenerationOf(uint64_t state) { return state >> 2; }
constexpr bool IsLive(uint64_t state) { return (state & 3) == static_cast<uint64_t>(RecordState::kLive); }

// The offsets of the parts, for a capacity.
struct Extent {
  uint64_t capacity = 0;

  static constexpr uint64_t records_offset() { return kHeaderBytes; }
  constexpr unsigned index_bits_max() const {
    const auto bits = static_cast<unsigned>(std::bit_width(2 * capacity - 1));
    return bits < kIndexBitsMin ? kIndexBitsMin : bits;  // at most half of the words are in use
  }
  constexpr uint64_t index_offset(unsigned bits) const {
    const uint64_t smaller = (uint64_t{sizeof(uint64_t)} << bits) - (uint64_t{sizeof(uint64_t)} << kIndexBitsMin);
    return records_offset() + capacity * sizeof(Record) + smaller;
  }
  constexpr uint64_t bytes() const { return index_offset(index_bits_max() + 1); }
};

// An index word is tag (from the hash) << 32 | slot + 2. 0 means empty; 1 is a tombstone.
inline constexpr uint64_t kEmpty = 0;
inline constexpr uint64_t kTombstone = 1;
constexpr uint32_t TagOf(const Hash128& hash) { return static_cast<uint32_t>(hash.high); }
constexpr uint64_t IndexWord(const Hash128& hash, uint32_t slot) {
  return uint64_t{TagOf(hash)} << 32 | (uint64_t{slot} + 2);
}
// REQUIRES: the word is neither empty nor a tombstone. A malformed word gives a slot beyond every capacity.
constexpr uint64_t SlotOf(uint64_t index_word) { return (index_word & 0xFFFFFFFF) - 2; }
constexpr bool HasTag(uint64_t index_word, const Hash128& hash) { return index_word >> 32 == TagOf(hash); }

// A mapped catalogue. REQUIRES: the mapping was checked to have the size of `extent`.
struct Table {
  const std::byte* base = nullptr;
  Extent extent;

  const Header& header() const { return *reinterpret_cast<const Header*>(base); }
  const Record& record(uint64_t slot) const {
    return *reinterpret_cast<const Record*>(base + Extent::records_offset() + slot * sizeof(Record));
  }
  const uint64_t* index(unsigned bits) const {
    return reinterpret_cast<const uint64_t*>(base + extent.index_offset(bits));
  }
};

inline bool HasHash(const Record& record, const Hash128& hash) {
  return Load(record.hash_low, std::memory_order_relaxed) == hash.low &&
         Load(record.hash_high, std::memory_order_relaxed) == hash.high;
}

// A slot and its state, or nothing. A function returns two words in registers; an optional would be returned through
// memory, which costs as much as the rest of the search.
struct Found {
  uint64_t slot = 0;
  uint64_t state = 0;  // live when it was read; 0: nothing was found

  explicit operator bool() const { return state != 0; }
};

// Searches one index. The record may change as soon as this returns: only a confirmed hold keeps it.
inline Found FindIn(const Table& table, unsigned bits, const Hash128& hash) {
  const uint64_t* const index = table.index(bits);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (unsigned probe = 0; probe < kProbesMax; ++probe) {
    const uint64_t word = Load(index[(hash.low + probe) & mask], std::memory_order_acquire);
    if (word == kEmpty) return {};
    if (word == kTombstone || !HasTag(word, hash) || SlotOf(word) >= table.extent.capacity) continue;
    const Record& record = table.record(SlotOf(word));
    const uint64_t state = Load(record.state, std::memory_order_acquire);
    if (IsLive(state) && HasHash(record, hash)) return {SlotOf(word), state};
  }
  return {};
}

// Searches the current index. Nothing can also mean that the name has no place in the table.
inline Found Find(const Table& table, const Hash128& hash) {
  for (unsigned retry = 0; retry < kRetriesMax; ++retry) {
    const uint64_t bits = Load(table.header().index_bits, std::memory_order_acquire);
    if (bits < kIndexBitsMin || bits > table.extent.index_bits_max()) return {};
    if (const auto found = FindIn(table, static_cast<unsigned>(bits), hash)) return found;
    if (Load(table.header().index_bits, std::memory_order_acquire) == bits) return {};
  }
  return {};
}

// The content of a record. REQUIRES: the record is held.
struct Facts {
  uint64_t arena = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t share = 0;
  uint64_t generation = 0;
  bool enforced = false;
  bool unnamed = false;
  std::optional<uint16_t> described;  // bytes of the description; nullopt: ask by a call
  std::array<char, kDescriptionBytesMax> description;

  std::string_view text() const { return {description.data(), described.value_or(0)}; }
};

inline Facts Read(const Record& record) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Facts facts;
  const uint64_t place = Load(record.place, kRelaxed);
  facts.arena = place >> kFlagBits;
  facts.enforced = (place & kFlagEnforced) != 0;
  facts.unnamed = (place & kFlagUnnamed) != 0;
  facts.offset = Load(record.offset, kRelaxed);
  facts.size = Load(record.size, kRelaxed);
  facts.share = Load(record.share, kRelaxed);
  facts.generation = Load(record.share_generation, kRelaxed);
  std::array<uint64_t, kDescriptionWords> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = Load(record.description[i], kRelaxed);
  const auto length = static_cast<uint16_t>(words[0]);
  if (length <= kDescriptionBytesMax) facts.described = length;
  std::memcpy(facts.description.data(), reinterpret_cast<const char*>(words.data()) + sizeof(length),
              kDescriptionBytesMax);
  return facts;
}

}  // namespace arraybridge::catalogue
