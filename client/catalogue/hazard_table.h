// SPDX-License-Identifier: Apache-2.0
// A HazardTable is this process's hazard page for one catalogue, with a count of users for each slot. All arrays of a
// share use the same slot, unless a thread meets another one that is claiming or clearing it; then it takes a slot of
// its own. Taking a slot costs a catalogue lookup and a fence. The last user clears the slot, on any thread. Neither
// makes a system call. Clearing a slot, and taking a slot again that has no user, need no lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "client/catalogue/catalogue.h"
#include "client/lifeline/shared_mapping.h"
#include "proto/boundary/byte_range.h"
#include "proto/boundary/layouts/hazard.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// The hazard page, mapped writable. Not mapped in forked children, which must not clear their parent's slots.
class MappedHazardPage {
 public:
  // FAILED_PRECONDITION: the file is not a hazard page of this layout, or could shrink.
  static Result<std::unique_ptr<MappedHazardPage>> Map(const UniqueFd& file);

  hazard::Page& page() { return page_; }

 private:
  explicit MappedHazardPage(SharedMapping pages)
      : pages_(std::move(pages)), page_(*static_cast<hazard::Page*>(pages_.base())) {}
  const SharedMapping pages_;
  hazard::Page& page_;
};

// Thread-safe. `Order`: hazard::Ordering, except in its own tests.
template <class Order>
class BasicHazardTable {
 public:
  // One user's share of a slot, released by the destructor.
  class HazardSlot {
   public:
    HazardSlot() = default;
    HazardSlot(HazardSlot&& other) noexcept : table_(std::exchange(other.table_, nullptr)), index_(other.index_) {}
    HazardSlot& operator=(HazardSlot&& other) noexcept {
      if (this != &other) {
        End();
        table_ = std::exchange(other.table_, nullptr);
        index_ = other.index_;
      }
      return *this;
    }
    HazardSlot(const HazardSlot&) = delete;
    HazardSlot& operator=(const HazardSlot&) = delete;
    ~HazardSlot() { End(); }

    explicit operator bool() const { return table_ != nullptr; }
    // The record does not change until End. REQUIRES: *this.
    const catalogue::Record& record() const { return table_->RecordOf(index_); }
    // Returns true if the share was withdrawn meanwhile and no other thread of this process uses the slot; the caller
    // may then notify the broker. Idempotent.
    bool End() { return table_ != nullptr && std::exchange(table_, nullptr)->Release(index_); }

   private:
    friend class BasicHazardTable;
    HazardSlot(BasicHazardTable* table, uint32_t index) : table_(table), index_(index) {}

    BasicHazardTable* table_ = nullptr;
    uint32_t index_ = 0;
  };

  BasicHazardTable(std::unique_ptr<const ReadCatalogue> from, std::unique_ptr<MappedHazardPage> page)
      : catalogue_(std::move(from)), written_(std::move(page)), page_(written_->page()) {
    for (auto& bucket : buckets_) bucket.store(kNone, std::memory_order_relaxed);
  }
  // REQUIRES: all its slots have ended.
  ~BasicHazardTable() = default;

  // Returns an empty slot if the catalogue does not have the name, or if every slot is in use. The caller then sends a
  // request.
  HazardSlot Take(std::string_view name) AB_EXCLUDES(mutex_) { return Take(catalogue_->HashOf(name)); }
  HazardSlot Take(const Hash128& hash) AB_EXCLUDES(mutex_) {
    const auto found = catalogue_->Find(hash);
    if (!found) return {};
    uint32_t index = TakeAgain(hash, found);
    if (index == kNone) index = TakeLocked(hash, found);
    return index == kNone ? HazardSlot{} : HazardSlot{this, index};
  }

  // The share of a slot in use whose range contains these bytes; its number is 0 if there is none. REQUIRES: arrays of
  // that share are in use until the caller is done. Records of other slots may change meanwhile.
  catalogue::Facts FindHeld(uint64_t arena, uint64_t offset, uint64_t bytes) const AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const uint32_t high = std::min(Load(page_.high, std::memory_order_relaxed), hazard::kWords);
    for (uint32_t i = 0; i < high; ++i) {
      if ((entries_[i].users.load(std::memory_order_acquire) & ~kOwned) == 0) continue;
      const catalogue::Facts facts = catalogue::Read(RecordOf(i));
      if (facts.arena == arena && ByteRange{facts.offset, facts.size}.Contains({offset, bytes})) return facts;
    }
    return {};
  }

  const ReadCatalogue& catalogue() const { return *catalogue_; }
  // The number of slots taken so far.
  uint64_t taken() const {
    uint64_t sum = 0;
    for (const Entry& entry : entries_) sum += entry.taken.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr uint32_t kNone = hazard::kWords;
  static constexpr uint32_t kBuckets = 1024;
  static constexpr uint32_t kNoBucket = kBuckets;

  // A flag in `users`: one thread owns the entry, to claim or clear its slot, and no other thread changes the entry
  // until then.
  static constexpr uint32_t kOwned = uint32_t{1} << 31;

  // `taken` is written by the entry's owner, or by a user of the entry that holds the lock. `word` is written by the
  // owner alone, with the lock held. Therefore the owner reads `word` without the lock, and a thread that holds the
  // lock reads the `word` of any entry.
  struct Entry {
    uint64_t word = 0;  // the slot's current or last word
    std::atomic<uint64_t> taken{0};
    std::atomic<uint32_t> users{0};
    uint32_t bucket = kNoBucket;
    uint32_t next = kNone;  // next entry in its bucket
  };

  static uint64_t WordOf(catalogue::Found found) {
    return hazard::WordOf(found.slot, catalogue::GenerationOf(found.state));
  }
  // Computed from the name, not from the slot's word, so that the processor reads the bucket while it waits for the
  // catalogue.
  static uint32_t BucketOf(const Hash128& hash) { return static_cast<uint32_t>(hash.low % kBuckets); }
  const catalogue::Record& RecordOf(uint32_t index) const {
    return catalogue_->record((entries_[index].word >> catalogue::kGenerationBits) - 1);
  }

  // The usual case, without a lock: the share was held before, and its entry is the first of its bucket and has no
  // user. Returns kNone in any other case.
  uint32_t TakeAgain(const Hash128& hash, catalogue::Found found) {
    const uint32_t index = buckets_[BucketOf(hash)].load(std::memory_order_relaxed);
    if (index == kNone || !Own(index)) return kNone;
    if (entries_[index].word == WordOf(found) && Claim(index, found)) return Use(index);
    Disown(index);
    return kNone;
  }

  // The general case. The page's `high`, the buckets and the words of entries change only here, with the lock held.
  uint32_t TakeLocked(const Hash128& hash, catalogue::Found found) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (unsigned retry = 0; found && retry < catalogue::kRetriesMax; ++retry) {
      const uint64_t word = WordOf(found);
      uint32_t index = kNone;
      if (JoinOrOwn(hash, word, index)) return index;
      if (index == kNone) index = OwnLowest();
      if (index == kNone) return kNone;
      if (Claim(index, found)) {
        SetWord(index, hash, word);
        return Use(index);
      }
      Disown(index);
      found = catalogue_->Find(hash);
    }
    return kNone;
  }

  // Returns true if an entry with this word had users and has one more now; `index` is that entry. Otherwise the caller
  // owns `index`, which has this word and no user, or `index` is kNone.
  bool JoinOrOwn(const Hash128& hash, uint64_t word, uint32_t& index) AB_REQUIRES(mutex_) {
    uint32_t i = buckets_[BucketOf(hash)].load(std::memory_order_relaxed);
    for (; i != kNone; i = entries_[i].next) {
      if (entries_[i].word != word) continue;
      uint32_t users = entries_[i].users.load(std::memory_order_relaxed);
      while (users != 0 && users < kOwned) {
        if (!entries_[i].users.compare_exchange_weak(users, users + 1, std::memory_order_acquire)) continue;
        if (index != kNone) Disown(index);
        Count(i);
        index = i;
        return true;
      }
      if (index == kNone && users == 0 && Own(i)) index = i;
    }
    return false;
  }
  // Takes the lowest free entry, so that the broker reads no more words than were ever in use at the same time.
  uint32_t OwnLowest() AB_REQUIRES(mutex_) {
    for (uint32_t i = 0; i < hazard::kWords; ++i) {
      if (Own(i)) return i;
    }
    return kNone;
  }

  // Returns false if the entry has users or an owner.
  bool Own(uint32_t index) {
    uint32_t none = 0;
    auto& users = entries_[index].users;
    return users.load(std::memory_order_relaxed) == 0 &&
           users.compare_exchange_strong(none, kOwned, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void Disown(uint32_t index) { entries_[index].users.store(0, std::memory_order_release); }
  // REQUIRES: the caller owns `index`. The same holds for SetWord and Use.
  bool Claim(uint32_t index, catalogue::Found found) {
    return hazard::Claim<Order>(page_, index, found.slot, found.state, catalogue_->record(found.slot).state);
  }
  void SetWord(uint32_t index, const Hash128& hash, uint64_t word) AB_REQUIRES(mutex_) {
    Entry& entry = entries_[index];
    entry.word = word;
    const uint32_t bucket = BucketOf(hash);
    if (entry.bucket == bucket) return;
    if (entry.bucket != kNoBucket) LeaveBucket(index);
    entry.bucket = bucket;
    entry.next = buckets_[bucket].load(std::memory_order_relaxed);
    buckets_[bucket].store(index, std::memory_order_relaxed);
  }
  void LeaveBucket(uint32_t index) AB_REQUIRES(mutex_) {
    auto& first = buckets_[entries_[index].bucket];
    uint32_t at = first.load(std::memory_order_relaxed);
    if (at == index) return first.store(entries_[index].next, std::memory_order_relaxed);
    while (entries_[at].next != index) at = entries_[at].next;
    entries_[at].next = entries_[index].next;
  }
  // The owner becomes the first user.
  uint32_t Use(uint32_t index) {
    Count(index);
    entries_[index].users.store(1, std::memory_order_release);
    return index;
  }
  void Count(uint32_t index) {
    auto& taken = entries_[index].taken;
    taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Needs no lock. Returns true if this was the last user and the record has changed since.
  bool Release(uint32_t index) {
    Entry& entry = entries_[index];
    uint32_t users = entry.users.load(std::memory_order_relaxed);
    while (!entry.users.compare_exchange_weak(users, users == 1 ? kOwned : users - 1, std::memory_order_acq_rel)) {
      continue;
    }
    if (users != 1) return false;
    const uint64_t generation = entry.word & catalogue::kGenerationMax;
    const uint64_t& state = RecordOf(index).state;
    hazard::Clear(page_, index);
    // No fence: a withdrawal at this moment may find the slot set and get no hint. The broker then checks again by
    // itself.
    const bool live =
        Load(state, std::memory_order_relaxed) == catalogue::StateOf(generation, catalogue::RecordState::kLive);
    Disown(index);
    return !live;
  }

  const std::unique_ptr<const ReadCatalogue> catalogue_;
  const std::unique_ptr<MappedHazardPage> written_;
  hazard::Page& page_;
  mutable Mutex mutex_;
  std::array<Entry, hazard::kWords> entries_;
  std::array<std::atomic<uint32_t>, kBuckets> buckets_;  // written with the lock held
};

using HazardTable = BasicHazardTable<hazard::Ordering>;
using HazardSlot = HazardTable::HazardSlot;

}  // namespace arraybridge
