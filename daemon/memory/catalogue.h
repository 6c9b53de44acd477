// A Catalogue is one namespace's shares as a table that its clients map read-only (proto/boundary/catalogue_layout.h):
// what stands in it is found and held without a call. It is a cache of the Broker's own knowledge: what does not fit,
// or was never entered, is found by a call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "proto/boundary/catalogue_layout.h"
#include "proto/boundary/holds_layout.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// A share's place in a catalogue. The generation is the record's, and never comes back.
struct CatalogueEntry {
  uint32_t slot = 0;
  uint64_t generation = 0;

  // What a page that holds it says.
  uint64_t hold() const { return holds::WordOf(slot, generation); }
};

struct CatalogueRow {
  std::string_view name;
  uint64_t arena = 0;  // REQUIRES: < 2^48
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t share = 0;
  uint64_t generation = 0;
  bool enforced = false;
  bool unnamed = false;
  std::string_view description;  // a longer one than fits stays out: clients ask once for it
};

// Not thread-safe, but for the clients that read it. Pages are taken from the kernel as they are needed.
class Catalogue {
 public:
  // For at most `capacity` shares at a time. RESOURCE_EXHAUSTED: no descriptor, no memory.
  static Result<std::unique_ptr<Catalogue>> Create(uint64_t capacity, const std::array<uint8_t, 16>& broker_id);
  ~Catalogue();
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  // Processes that still map it see that it is closed. Idempotent; a catalogue that dies is closed.
  void Close();
  // A read-only description of its own. Thread-safe.
  Result<UniqueFd> Export() const;

  // The name finds this share from now on; who looks meanwhile finds it, or the one that had the name before. Nothing:
  // the table is full, its memory is, or too many names hash to the same place.
  std::optional<CatalogueEntry> Put(const CatalogueRow& row);
  // Nobody can take a new hold on it once this has returned. Its record stays as it is for those who have one.
  void Retire(const CatalogueEntry& entry);
  // The record may be written again. REQUIRES: retired, and no page holds it.
  void Free(const CatalogueEntry& entry);
  // From now on the kernel refuses every write to its bytes. REQUIRES: not retired.
  void SetEnforced(const CatalogueEntry& entry);

  uint64_t live() const { return live_; }
  uint64_t bytes() const { return table_.extent.bytes(); }  // of address space, not of memory

 private:
  Catalogue(UniqueFd file, std::byte* base, uint64_t capacity);

  catalogue::Header& header() { return *reinterpret_cast<catalogue::Header*>(base_); }
  catalogue::Record& record(uint64_t slot) { return const_cast<catalogue::Record&>(table_.record(slot)); }
  uint64_t* index() { return const_cast<uint64_t*>(table_.index(bits_)); }

  bool Reserve(uint64_t offset, uint64_t bytes);
  std::optional<uint32_t> TakeSlot();
  void Write(uint32_t slot, uint64_t generation, const Hash128& hash, const CatalogueRow& row);
  // Where the name's word is, or one may be put; nothing within the probes.
  std::optional<uint64_t> PlaceFor(const Hash128& hash);
  bool PutIndex(uint32_t slot, const Hash128& hash);
  void DropIndex(uint32_t slot, const Hash128& hash);
  bool Grow();

  const UniqueFd file_;  // writable, never handed out
  std::byte* const base_;
  const catalogue::Table table_;
  bool open_ = false;  // its header is written
  SipKey key_;
  unsigned bits_ = catalogue::kIndexBitsMin;
  uint64_t in_index_ = 0;  // words that are not empty
  uint64_t live_ = 0;
  uint64_t slots_used_ = 0;      // the first so many have been written
  uint64_t slots_reserved_ = 0;  // for so many there is memory
  std::vector<uint32_t> free_;
};

}  // namespace arraybridge
