// SPDX-License-Identifier: Apache-2.0
// A Catalogue is the table of one namespace's shares that clients map read-only (proto/boundary/layouts/catalogue.h). A
// client finds and holds a share in it without a call. The table is a cache of the Broker's state: a client finds a
// share that does not fit, or was never entered, by a call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/memory/descriptor_store.h"
#include "proto/boundary/layouts/catalogue.h"
#include "proto/boundary/layouts/hazard.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// A share's place in a catalogue. The generation belongs to the record and is never reused.
struct CatalogueEntry {
  uint32_t slot = 0;
  uint64_t generation = 0;

  // The word of a hazard slot that holds this entry.
  uint64_t hazard_word() const { return hazard::WordOf(slot, generation); }
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
  std::string_view description;  // omitted if it does not fit: clients ask for it once
};

// Not thread-safe among its callers; clients may read it at any time. The kernel provides its pages as they are needed.
class Catalogue {
 public:
  // Creates a catalogue for at most `capacity` shares at a time. `for_next_daemon`: another daemon may take it over;
  // the kernel then refuses writable descriptions only to processes of other users without CAP_DAC_OVERRIDE.
  // RESOURCE_EXHAUSTED: no descriptor or no memory.
  static Result<std::unique_ptr<Catalogue>> Create(uint64_t capacity, const std::array<uint8_t, 16>& broker_id,
                                                   bool for_next_daemon = false);
  // The catalogue of another daemon. FAILED_PRECONDITION: it is none, or has another layout. REQUIRES: then each live
  // record is Kept or Dropped (ForEachUsed), before any other call.
  static Result<std::unique_ptr<Catalogue>> Adopt(UniqueFd file);
  // A record that was live or dead when the other daemon ended.
  struct Used {
    CatalogueEntry entry;
    uint64_t share = 0;
    bool live = false;
  };
  // Visits all records that are in use or wait for a hazard slot. If `visit` returns false, the record is not needed:
  // it is retired, and free. Clears records that were being written.
  void ForEachUsed(const std::function<bool(const Used&)>& visit);
  // Whether the record says this of its share. REQUIRES: `entry` is live or dead.
  bool Says(const CatalogueEntry& entry, const CatalogueRow& row) const;
  ~Catalogue();
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  // Tells processes that still map it that the catalogue is closed. Idempotent; the destructor calls it.
  void Close();
  // Opens a new read-only file description. Thread-safe.
  Result<UniqueFd> Export() const;
  // The file; it stays owned by this object.
  int file() const { return file_.get(); }

  // Maps the name to this share from now on. A client that looks the name up meanwhile finds this share or the previous
  // share of that name. Returns nullopt if the table or its memory is full, or if too many names hash to the same
  // place.
  std::optional<CatalogueEntry> Put(const CatalogueRow& row);
  // After this call no client can name the entry in a hazard slot anew. Its record stays unchanged for clients that
  // already name it.
  void Retire(const CatalogueEntry& entry);
  // Allows the record to be written again. REQUIRES: the entry was retired, and no hazard page holds it.
  void Free(const CatalogueEntry& entry);
  // Records that the kernel refuses every write to the share's bytes. REQUIRES: the entry is not retired.
  void SetEnforced(const CatalogueEntry& entry);

  StoreGuard stored;

  uint64_t live() const { return live_; }
  uint64_t bytes() const { return table_.extent.bytes(); }  // size of the address space, not of the memory in use

 private:
  Catalogue(UniqueFd file, std::byte* base, uint64_t capacity);

  catalogue::Header& header() { return *reinterpret_cast<catalogue::Header*>(base_); }
  catalogue::Record& record(uint64_t slot) { return const_cast<catalogue::Record&>(table_.record(slot)); }
  uint64_t* index() { return const_cast<uint64_t*>(table_.index(bits_)); }

  bool Reserve(uint64_t offset, uint64_t bytes);
  std::optional<uint32_t> TakeSlot();
  void Write(uint32_t slot, uint64_t generation, const Hash128& hash, const CatalogueRow& row);
  // The index of the name's word, or of a word where it may be put; nullopt if the allowed probes find neither.
  std::optional<uint64_t> PlaceFor(const Hash128& hash);
  bool PutIndex(uint32_t slot, const Hash128& hash);
  void DropIndex(uint32_t slot, const Hash128& hash);
  bool Grow();

  const UniqueFd file_;  // writable; never exported
  std::byte* const base_;
  const catalogue::Table table_;
  bool open_ = false;  // the header has been written
  SipKey key_;
  unsigned bits_ = catalogue::kIndexBitsMin;
  uint64_t in_index_ = 0;  // number of words that are not empty
  uint64_t live_ = 0;
  uint64_t slots_used_ = 0;      // number of leading slots that have been written
  uint64_t slots_reserved_ = 0;  // number of leading slots that have memory
  std::vector<uint32_t> free_;
};

}  // namespace arraybridge::daemon
