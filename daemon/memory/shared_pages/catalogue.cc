// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/shared_pages/catalogue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/memory/host/memfd.h"
#include "proto/boundary/explained_error.h"

namespace arraybridge::daemon {
namespace {

using catalogue::Record;
using catalogue::RecordState;
using catalogue::StateOf;

constexpr uint64_t kSlotsPerReserve = 512;  // 64 KiB of records
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

Hash128 HashOf(const Record& record) { return {Load(record.hash_low, kRelaxed), Load(record.hash_high, kRelaxed)}; }

}  // namespace

Result<std::unique_ptr<Catalogue>> Catalogue::Create(uint64_t capacity, const std::array<uint8_t, 16>& broker_id,
                                                     bool for_next_daemon) {
  AB_CHECK(capacity > 0 && capacity <= catalogue::kSlotsMax);
  const uint64_t bytes = catalogue::Extent{capacity}.bytes();
  AB_ASSIGN_OR_RETURN(auto file, CreateMemfd(bytes, "arraybridge-catalogue"));
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping a catalogue of ", bytes, " bytes: ", ExplainedError(errno, "the broker"))
        .Because("SYSTEM_MEMORY");
  }
  std::unique_ptr<Catalogue> made(new Catalogue(std::move(file), static_cast<std::byte*>(base), capacity));
  // After the seal FUTURE_WRITE only this mapping can write the file, whichever descriptor another process obtains.
  const int error = AddMemfdSeals(made->file_.get(), (for_next_daemon ? 0 : F_SEAL_FUTURE_WRITE) | F_SEAL_SEAL);
  if (error != 0) return Internal("a catalogue cannot be sealed: ", std::strerror(error));
  const catalogue::Extent extent = made->table_.extent;
  const bool reserved = made->Reserve(0, catalogue::kHeaderBytes) &&
                        made->Reserve(extent.index_offset(made->bits_), sizeof(uint64_t) << made->bits_);
  if (!reserved) return ResourceExhausted("no memory for a catalogue").Because("SYSTEM_MEMORY");
  std::array<uint64_t, 2> random{};
  AB_CHECK(::getrandom(random.data(), sizeof random, 0) == sizeof random);
  made->key_ = {random[0], random[1]};
  catalogue::Header& header = made->header();
  header.version = catalogue::kVersion;
  header.record_bytes = sizeof(Record);
  header.key = made->key_;
  header.capacity = capacity;
  header.records_offset = catalogue::Extent::records_offset();
  header.broker_id = broker_id;
  header.magic = catalogue::kMagic;
  Store(header.index_bits, made->bits_, kRelease);
  made->open_ = true;
  return made;
}

// Nothing in the file is trusted: a process with CAP_DAC_OVERRIDE could have written it.
Result<std::unique_ptr<Catalogue>> Catalogue::Adopt(UniqueFd file) {
  catalogue::Header header{};
  if (::pread(file.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.magic != catalogue::kMagic || header.version != catalogue::kVersion ||
      header.record_bytes != sizeof(Record) || header.capacity == 0 || header.capacity > catalogue::kSlotsMax) {
    return FailedPrecondition("the stored catalogue has another layout");
  }
  const catalogue::Extent extent{header.capacity};
  AB_RETURN_IF_ERROR(CheckStoredMemfd(file.get(), extent.bytes(), "a catalogue"));
  if (header.index_bits < catalogue::kIndexBitsMin || header.index_bits > extent.index_bits_max()) {
    return FailedPrecondition("the stored catalogue is damaged");
  }
  constexpr int kShared = MAP_SHARED | MAP_NORESERVE;
  void* const base = ::mmap(nullptr, extent.bytes(), PROT_READ | PROT_WRITE, kShared, file.get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping a catalogue: ", ExplainedError(errno, "the broker")).Because("SYSTEM_MEMORY");
  }
  std::unique_ptr<Catalogue> adopted(new Catalogue(std::move(file), static_cast<std::byte*>(base), header.capacity));
  adopted->key_ = header.key;
  adopted->bits_ = static_cast<unsigned>(header.index_bits);
  adopted->open_ = true;
  return adopted;
}

void Catalogue::ForEachUsed(const std::function<bool(const Used&)>& visit) {
  // Slots have memory in order.
  constexpr uint64_t kOffset = catalogue::Extent::records_offset();
  const off_t hole = ::lseek(file_.get(), static_cast<off_t>(kOffset), SEEK_HOLE);
  const uint64_t end = hole < 0 ? kOffset : static_cast<uint64_t>(hole);
  slots_reserved_ = std::min((end - kOffset) / sizeof(Record), table_.extent.capacity);
  slots_used_ = slots_reserved_;
  for (uint32_t slot = 0; slot < slots_used_; ++slot) {
    Record& its = record(slot);
    const uint64_t state = Load(its.state, kRelaxed);
    const CatalogueEntry entry{slot, catalogue::GenerationOf(state)};
    const auto is = [state](RecordState which) { return (state & 3) == static_cast<uint64_t>(which); };
    const bool used = is(RecordState::kLive) || is(RecordState::kDead);
    if (used && visit({entry, Load(its.share, kRelaxed), is(RecordState::kLive)})) {
      live_ += is(RecordState::kLive) ? 1 : 0;
      continue;
    }
    if (is(RecordState::kLive)) hazard::Retire(its.state);
    if (entry.generation < catalogue::kGenerationMax) free_.push_back(slot);
  }
  // The words of the index are written anew, because some may name records of other names, or none.
  uint64_t* const words = index();
  const uint64_t count = uint64_t{1} << bits_;
  for (uint64_t at = 0; at < count; ++at) {
    const uint64_t word = Load(words[at], kRelaxed);
    if (word == catalogue::kEmpty) continue;
    ++in_index_;
    const uint64_t slot = word == catalogue::kTombstone ? UINT64_MAX : catalogue::SlotOf(word);
    const bool names_live = slot < slots_used_ && catalogue::IsLive(Load(record(slot).state, kRelaxed));
    if (!names_live || !catalogue::HasTag(word, HashOf(record(slot))))
      Store(words[at], catalogue::kTombstone, kRelease);
  }
  // The other daemon may have ended between the record and its word.
  for (uint32_t slot = 0; slot < slots_used_; ++slot) {
    if (!catalogue::IsLive(Load(record(slot).state, kRelaxed))) continue;
    const Hash128 hash = HashOf(record(slot));
    if (!catalogue::FindIn(table_, bits_, hash)) PutIndex(slot, hash);
  }
}

bool Catalogue::Says(const CatalogueEntry& entry, const CatalogueRow& row) const {
  const Record& its = table_.record(entry.slot);
  const catalogue::Facts facts = catalogue::Read(its);
  return HashOf(its) == SipHash128(key_, row.name) && facts.arena == row.arena && facts.offset == row.offset &&
         facts.size == row.size && facts.share == row.share && facts.generation == row.generation &&
         facts.unnamed == row.unnamed && (!facts.described || facts.text() == row.description);
}

Catalogue::Catalogue(UniqueFd file, std::byte* base, uint64_t capacity)
    : file_(std::move(file)), base_(base), table_{base, {capacity}} {}

Catalogue::~Catalogue() {
  Close();
  ::munmap(base_, bytes());
}

void Catalogue::Close() {
  if (open_) Store(header().closed, 1, kRelease);
}

Result<UniqueFd> Catalogue::Export() const { return ReopenMemfd(file_.get(), O_RDONLY | O_NONBLOCK); }

// Reserves memory for a range. Without it the first write into a page could raise SIGBUS when memory is short.
bool Catalogue::Reserve(uint64_t offset, uint64_t bytes) {
  return ::fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

std::optional<uint32_t> Catalogue::TakeSlot() {
  if (!free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (slots_used_ == table_.extent.capacity) return std::nullopt;
  if (slots_used_ >= slots_reserved_) {
    const uint64_t more = std::min(kSlotsPerReserve, table_.extent.capacity - slots_reserved_);
    const uint64_t offset = catalogue::Extent::records_offset() + slots_reserved_ * sizeof(Record);
    if (!Reserve(offset, more * sizeof(Record))) return std::nullopt;
    slots_reserved_ += more;
  }
  return static_cast<uint32_t>(slots_used_++);
}

std::optional<CatalogueEntry> Catalogue::Put(const CatalogueRow& row) {
  // If Grow finds no memory, the index keeps working while it fills up; clients find a name that has no place in it by
  // a call.
  if (in_index_ * 2 >= uint64_t{1} << bits_ && bits_ < table_.extent.index_bits_max()) Grow();
  const auto slot = TakeSlot();
  if (!slot) return std::nullopt;
  const Hash128 hash = SipHash128(key_, row.name);
  const uint64_t generation = catalogue::GenerationOf(Load(record(*slot).state, kRelaxed)) + 1;
  Write(*slot, generation, hash, row);
  const CatalogueEntry entry{*slot, generation};
  ++live_;
  if (PutIndex(*slot, hash)) return entry;
  Retire(entry);
  Free(entry);  // no client could have found it
  return std::nullopt;
}

void Catalogue::Write(uint32_t slot, uint64_t generation, const Hash128& hash, const CatalogueRow& row) {
  Record& to = record(slot);
  Store(to.state, StateOf(generation, RecordState::kWriting), kRelaxed);
  ThreadFence(kRelease);  // a reader that still sees the old state sees the old fields
  Store(to.hash_low, hash.low, kRelaxed);
  Store(to.hash_high, hash.high, kRelaxed);
  const uint64_t flags = (row.enforced ? catalogue::kFlagEnforced : 0) | (row.unnamed ? catalogue::kFlagUnnamed : 0);
  Store(to.place, row.arena << catalogue::kFlagBits | flags, kRelaxed);
  Store(to.offset, row.offset, kRelaxed);
  Store(to.size, row.size, kRelaxed);
  Store(to.share, row.share, kRelaxed);
  Store(to.share_generation, row.generation, kRelaxed);
  const bool fits = row.description.size() <= catalogue::kDescriptionBytesMax;
  const uint16_t length = fits ? static_cast<uint16_t>(row.description.size()) : catalogue::kNoDescription;
  std::array<uint64_t, catalogue::kDescriptionWords> words{};
  std::memcpy(words.data(), &length, sizeof(length));
  if (fits && length > 0) {
    std::memcpy(reinterpret_cast<char*>(words.data()) + sizeof(length), row.description.data(), length);
  }
  for (size_t i = 0; i < words.size(); ++i) Store(to.description[i], words[i], kRelaxed);
  Store(to.state, StateOf(generation, RecordState::kLive), kRelease);
}

// Returns the word of the same name, whether its record is live or dead; otherwise the first word that may be written.
std::optional<uint64_t> Catalogue::PlaceFor(const Hash128& hash) {
  const uint64_t mask = (uint64_t{1} << bits_) - 1;
  std::optional<uint64_t> place;
  for (unsigned probe = 0; probe < catalogue::kProbesMax; ++probe) {
    const uint64_t at = (hash.low + probe) & mask;
    const uint64_t word = Load(index()[at], kRelaxed);
    if (word == catalogue::kEmpty) return place ? place : at;
    if (word == catalogue::kTombstone) {
      if (!place) place = at;
      continue;
    }
    const uint64_t slot = catalogue::SlotOf(word);
    if (catalogue::HasTag(word, hash) && slot < slots_used_ && HashOf(record(slot)) == hash) return at;
  }
  return place;
}

bool Catalogue::PutIndex(uint32_t slot, const Hash128& hash) {
  const auto at = PlaceFor(hash);
  if (!at) return false;
  if (Load(index()[*at], kRelaxed) == catalogue::kEmpty) ++in_index_;
  Store(index()[*at], catalogue::IndexWord(hash, slot), kRelease);
  return true;
}

// A tombstone that is followed by an empty word is cleared, because probing stops at the empty word anyway.
void Catalogue::DropIndex(uint32_t slot, const Hash128& hash) {
  const uint64_t mask = (uint64_t{1} << bits_) - 1;
  for (unsigned probe = 0; probe < catalogue::kProbesMax; ++probe) {
    uint64_t at = (hash.low + probe) & mask;
    const uint64_t word = Load(index()[at], kRelaxed);
    if (word == catalogue::kEmpty) return;
    if (word != catalogue::IndexWord(hash, slot)) continue;
    Store(index()[at], catalogue::kTombstone, kRelease);
    if (Load(index()[(at + 1) & mask], kRelaxed) != catalogue::kEmpty) return;
    for (; Load(index()[at], kRelaxed) == catalogue::kTombstone; at = (at - 1) & mask) {
      Store(index()[at], catalogue::kEmpty, kRelease);
      --in_index_;
    }
    return;
  }
}

// Builds the larger index in a region that was never used. A client that still reads the old index finds the name
// there, or sees afterwards that there is a new index.
bool Catalogue::Grow() {
  if (!Reserve(table_.extent.index_offset(bits_ + 1), sizeof(uint64_t) << (bits_ + 1))) return false;
  ++bits_;
  in_index_ = 0;
  for (uint32_t slot = 0; slot < slots_used_; ++slot) {
    if (catalogue::IsLive(Load(record(slot).state, kRelaxed))) PutIndex(slot, HashOf(record(slot)));
  }
  Store(header().index_bits, bits_, kRelease);
  return true;
}

void Catalogue::Retire(const CatalogueEntry& entry) {
  Record& dead = record(entry.slot);
  AB_CHECK(Load(dead.state, kRelaxed) == StateOf(entry.generation, RecordState::kLive));
  --live_;
  hazard::Retire(dead.state);
  DropIndex(entry.slot, HashOf(dead));
}

void Catalogue::Free(const CatalogueEntry& entry) {
  AB_CHECK(Load(record(entry.slot).state, kRelaxed) == StateOf(entry.generation, RecordState::kDead));
  // A slot whose generations are used up is not reused: its next share would look like an earlier one.
  if (entry.generation < catalogue::kGenerationMax) free_.push_back(entry.slot);
}

void Catalogue::SetEnforced(const CatalogueEntry& entry) {
  uint64_t& place = record(entry.slot).place;
  Store(place, Load(place, kRelaxed) | catalogue::kFlagEnforced, kRelaxed);
}

}  // namespace arraybridge::daemon
