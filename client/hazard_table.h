// A HazardTable is this process's hazard page on one catalogue, with a count of users for each slot: all arrays of a
// share use the same slot, except that a thread that meets another one claiming or clearing it takes a slot of its own.
// Taking a slot is a look into the catalogue and a fence. The last user clears it, on any thread. Neither makes a
// system call; to take a slot again that has no user, and to end one, needs no lock either.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "client/catalogue.h"
#include "client/shared_mapping.h"
#include "proto/boundary/holds_layout.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// The page, mapped writable. A forked child does not have it: it must not clear its parent's slots.
class HazardPage {
 public:
  // FAILED_PRECONDITION: it is no hazard page that this client can write, or could shrink.
  static Result<std::unique_ptr<HazardPage>> Map(const UniqueFd& file);
  HazardPage(const HazardPage&) = delete;
  HazardPage& operator=(const HazardPage&) = delete;

  holds::Page& page() { return page_; }

 private:
  explicit HazardPage(SharedMapping pages)
      : pages_(std::move(pages)), page_(*static_cast<holds::Page*>(pages_.base())) {}
  const SharedMapping pages_;
  holds::Page& page_;
};

// Thread-safe. `Order`: holds::Ordering, but in tests of it.
template <class Order>
class BasicHazardTable {
 public:
  // One user's part of a slot. Ends with it.
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
    // It stays as it is until End. REQUIRES: *this.
    const catalogue::Record& record() const { return table_->RecordOf(index_); }
    // True: the share was withdrawn meanwhile and no other thread here holds it, which the broker may be told.
    // Idempotent.
    bool End() { return table_ != nullptr && std::exchange(table_, nullptr)->Release(index_); }

   private:
    friend class BasicHazardTable;
    HazardSlot(BasicHazardTable* table, uint32_t index) : table_(table), index_(index) {}

    BasicHazardTable* table_ = nullptr;
    uint32_t index_ = 0;
  };

  BasicHazardTable(std::unique_ptr<const ReadCatalogue> from, std::unique_ptr<HazardPage> page)
      : catalogue_(std::move(from)), written_(std::move(page)), page_(written_->page()) {
    for (auto& bucket : buckets_) bucket.store(kNone, std::memory_order_relaxed);
  }
  // REQUIRES: every slot of it has ended.
  ~BasicHazardTable() = default;
  BasicHazardTable(const BasicHazardTable&) = delete;
  BasicHazardTable& operator=(const BasicHazardTable&) = delete;

  // Empty: the catalogue does not have the name (any more), or every slot is in use. The caller makes a call instead.
  HazardSlot Take(std::string_view name) AB_EXCLUDES(mutex_) { return Take(catalogue_->HashOf(name)); }
  HazardSlot Take(const Hash128& hash) AB_EXCLUDES(mutex_) {
    const auto found = catalogue_->Find(hash);
    if (!found) return {};
    uint32_t index = TakeAgain(hash, found);
    if (index == kNone) index = TakeLocked(hash, found);
    return index == kNone ? HazardSlot{} : HazardSlot{this, index};
  }

  const ReadCatalogue& catalogue() const { return *catalogue_; }
  // Slots taken so far.
  uint64_t taken() const {
    uint64_t sum = 0;
    for (const Entry& entry : entries_) sum += entry.taken.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr uint32_t kNone = holds::kWords;
  static constexpr uint32_t kBuckets = 1024;
  static constexpr uint32_t kNoBucket = kBuckets;

  // In `users`: one thread owns the entry, to claim its slot or to clear it. No other thread changes it until then.
  static constexpr uint32_t kOwned = uint32_t{1} << 31;

  // Its owner, or a thread that uses it and has the lock, writes `taken`. Its owner alone writes `word`, with the lock:
  // so the owner reads it without the lock, and a thread that has the lock reads it of any entry.
  struct Entry {
    uint64_t word = 0;  // what it holds, or held last
    std::atomic<uint64_t> taken{0};
    std::atomic<uint32_t> users{0};
    uint32_t bucket = kNoBucket;
    uint32_t next = kNone;  // in its bucket
  };

  static uint64_t WordOf(catalogue::Found found) {
    return holds::WordOf(found.slot, catalogue::GenerationOf(found.state));
  }
  // Of the name, not of the slot's word: the processor reads the bucket while it waits for the catalogue.
  static uint32_t BucketOf(const Hash128& hash) { return static_cast<uint32_t>(hash.low % kBuckets); }
  const catalogue::Record& RecordOf(uint32_t index) const {
    return catalogue_->record((entries_[index].word >> catalogue::kGenerationBits) - 1);
  }

  // The usual case, which needs no lock: the share was held before, and its entry is the first of its bucket and has no
  // user. kNone: any other case.
  uint32_t TakeAgain(const Hash128& hash, catalogue::Found found) {
    const uint32_t index = buckets_[BucketOf(hash)].load(std::memory_order_relaxed);
    if (index == kNone || !Own(index)) return kNone;
    if (entries_[index].word == WordOf(found) && Claim(index, found)) return Use(index);
    Disown(index);
    return kNone;
  }

  // The page's `high` and the buckets change with the lock only: an entry gets its first word, and another word, here.
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

  // True: one more user of `index`, an entry with this word that has users. False: the caller owns `index`, which has
  // this word and had no user, or there is none and it is kNone.
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
  // The lowest: the broker looks at no more words than were ever needed at a time.
  uint32_t OwnLowest() AB_REQUIRES(mutex_) {
    for (uint32_t i = 0; i < holds::kWords; ++i) {
      if (Own(i)) return i;
    }
    return kNone;
  }

  // False: it has users, or an owner.
  bool Own(uint32_t index) {
    uint32_t none = 0;
    auto& users = entries_[index].users;
    return users.load(std::memory_order_relaxed) == 0 &&
           users.compare_exchange_strong(none, kOwned, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void Disown(uint32_t index) { entries_[index].users.store(0, std::memory_order_release); }
  // REQUIRES: the caller owns `index`, as of SetWord and Use.
  bool Claim(uint32_t index, catalogue::Found found) {
    return holds::Claim<Order>(page_, index, found.slot, found.state, catalogue_->record(found.slot).state);
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
  // Its owner becomes its first user.
  uint32_t Use(uint32_t index) {
    Count(index);
    entries_[index].users.store(1, std::memory_order_release);
    return index;
  }
  void Count(uint32_t index) {
    auto& taken = entries_[index].taken;
    taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Needs no lock. True: it was the last user, and the record has changed since.
  bool Release(uint32_t index) {
    Entry& entry = entries_[index];
    uint32_t users = entry.users.load(std::memory_order_relaxed);
    while (!entry.users.compare_exchange_weak(users, users == 1 ? kOwned : users - 1, std::memory_order_acq_rel)) {
      continue;
    }
    if (users != 1) return false;
    const uint64_t generation = entry.word & catalogue::kGenerationMax;
    const uint64_t& state = RecordOf(index).state;
    holds::Clear(page_, index);
    // Not fenced: a withdrawal that comes just now may find the slot set and no hint; the broker looks again by itself.
    const bool live =
        Load(state, std::memory_order_relaxed) == catalogue::StateOf(generation, catalogue::RecordState::kLive);
    Disown(index);
    return !live;
  }

  const std::unique_ptr<const ReadCatalogue> catalogue_;
  const std::unique_ptr<HazardPage> written_;
  holds::Page& page_;
  Mutex mutex_;
  std::array<Entry, holds::kWords> entries_;
  std::array<std::atomic<uint32_t>, kBuckets> buckets_;  // written with the lock
};

using HazardTable = BasicHazardTable<holds::Ordering>;
using HazardSlot = HazardTable::HazardSlot;

}  // namespace arraybridge
