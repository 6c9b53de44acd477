// A HoldTable is this process's page of holds on one catalogue, and who uses each of them: one hold for a share and
// process, however many arrays of it there are. Taking one is a look into the catalogue and a fence; the last user
// clears it, on any thread, without a lock and without a system call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "client/catalogue.h"
#include "client/own_pages.h"
#include "proto/boundary/holds_layout.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// The page, mapped writable. A forked child does not have it: it must not clear what its parent holds.
class WrittenHolds {
 public:
  // FAILED_PRECONDITION: it is no page of holds that this client can write, or could shrink.
  static Result<std::unique_ptr<WrittenHolds>> Map(const UniqueFd& file);
  WrittenHolds(const WrittenHolds&) = delete;
  WrittenHolds& operator=(const WrittenHolds&) = delete;

  holds::Page& page() { return page_; }

 private:
  explicit WrittenHolds(OwnPages pages) : pages_(std::move(pages)), page_(*static_cast<holds::Page*>(pages_.base())) {}
  const OwnPages pages_;
  holds::Page& page_;
};

// Thread-safe. `Order`: holds::Ordering, but in tests of it.
template <class Order>
class BasicHoldTable {
 public:
  // One user's part of a hold. Ends with it.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept : table_(std::exchange(other.table_, nullptr)), index_(other.index_) {}
    Hold& operator=(Hold&& other) noexcept {
      if (this != &other) {
        End();
        table_ = std::exchange(other.table_, nullptr);
        index_ = other.index_;
      }
      return *this;
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { End(); }

    explicit operator bool() const { return table_ != nullptr; }
    // It stays as it is until End. REQUIRES: *this.
    const catalogue::Record& record() const { return table_->RecordOf(index_); }
    // True: the share was withdrawn meanwhile and nobody else here holds it, which the broker may be told. Idempotent.
    bool End() { return table_ != nullptr && std::exchange(table_, nullptr)->Release(index_); }

   private:
    friend class BasicHoldTable;
    Hold(BasicHoldTable* table, uint32_t index) : table_(table), index_(index) {}

    BasicHoldTable* table_ = nullptr;
    uint32_t index_ = 0;
  };

  BasicHoldTable(std::unique_ptr<const ReadCatalogue> from, std::unique_ptr<WrittenHolds> page)
      : catalogue_(std::move(from)), written_(std::move(page)), page_(written_->page()) {}
  // REQUIRES: every Hold of it has ended.
  ~BasicHoldTable() = default;
  BasicHoldTable(const BasicHoldTable&) = delete;
  BasicHoldTable& operator=(const BasicHoldTable&) = delete;

  // Nothing: the catalogue does not have it (any more), or every hold is taken; a call will tell.
  Hold Take(std::string_view name) AB_EXCLUDES(mutex_) { return Take(catalogue_->HashOf(name)); }
  Hold Take(const Hash128& hash) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (unsigned retry = 0; retry < catalogue::kRetriesMax; ++retry) {
      const auto found = catalogue_->Find(hash);
      if (!found) return {};
      const uint64_t word = holds::WordOf(found->slot, catalogue::GenerationOf(found->state));
      uint32_t free = kNone;
      if (const uint32_t shared = Join(word, free); shared != kNone) return {this, shared};
      if (free == kNone) free = LowestFree();
      if (free == kNone) return {};
      if (holds::Claim<Order>(page_, free, found->slot, found->state, catalogue_->record(found->slot).state)) {
        Use(free, word);
        return {this, free};
      }
    }
    return {};
  }

  const ReadCatalogue& catalogue() const { return *catalogue_; }
  // Takes so far.
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kNone = holds::kWords;
  static constexpr uint32_t kBuckets = 1024;

  // Of users: the last one is clearing the hold. It is free when that is done.
  static constexpr uint32_t kEnding = uint32_t{1} << 31;

  struct Entry {
    uint64_t word = 0;  // what it holds, or held last; changes only while it is free
    std::atomic<uint32_t> users{0};
    uint32_t next = kNone;  // in its bucket
    bool in_bucket = false;
  };

  static uint32_t BucketOf(uint64_t word) {
    return static_cast<uint32_t>(word * 0x9E3779B97F4A7C15 >> 54);  // Fibonacci hashing: the upper ten bits
  }
  const catalogue::Record& RecordOf(uint32_t index) const {
    return catalogue_->record(static_cast<uint32_t>((entries_[index].word >> catalogue::kGenerationBits) - 1));
  }

  // One more user of a hold that somebody uses. `free`: one that held the same share last.
  uint32_t Join(uint64_t word, uint32_t& free) AB_REQUIRES(mutex_) {
    for (uint32_t i = buckets_[BucketOf(word)]; i != kNone; i = entries_[i].next) {
      if (entries_[i].word != word) continue;
      uint32_t users = entries_[i].users.load(std::memory_order_acquire);
      if (users == 0) free = i;
      while (users != 0 && users < kEnding) {
        if (!entries_[i].users.compare_exchange_weak(users, users + 1, std::memory_order_relaxed)) continue;
        Count();
        return i;
      }
    }
    return kNone;
  }
  // The lowest: the broker looks at no more than was ever needed at a time.
  uint32_t LowestFree() const AB_REQUIRES(mutex_) {
    for (uint32_t i = 0; i < holds::kWords; ++i) {
      if (entries_[i].users.load(std::memory_order_acquire) == 0) return i;
    }
    return kNone;
  }

  void Use(uint32_t index, uint64_t word) AB_REQUIRES(mutex_) {
    Entry& entry = entries_[index];
    if (!entry.in_bucket || entry.word != word) {
      if (entry.in_bucket) LeaveBucket(index);
      entry.word = word;
      entry.next = std::exchange(buckets_[BucketOf(word)], index);
      entry.in_bucket = true;
    }
    entry.users.store(1, std::memory_order_relaxed);
    Count();
  }
  void LeaveBucket(uint32_t index) AB_REQUIRES(mutex_) {
    uint32_t* at = &buckets_[BucketOf(entries_[index].word)];
    while (*at != index) at = &entries_[*at].next;
    *at = entries_[index].next;
  }
  void Count() AB_REQUIRES(mutex_) {
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Without the lock. True: it was the last user, and the record is not what it was any more.
  bool Release(uint32_t index) {
    Entry& entry = entries_[index];
    uint32_t users = entry.users.load(std::memory_order_relaxed);
    while (!entry.users.compare_exchange_weak(users, users == 1 ? kEnding : users - 1, std::memory_order_acq_rel)) {
      continue;
    }
    if (users != 1) return false;
    const uint64_t generation = entry.word & catalogue::kGenerationMax;
    const uint64_t& state = RecordOf(index).state;
    holds::Clear(page_, index);
    // Not fenced: a withdrawal that comes just now may find the hold set and no hint; the broker looks again by itself.
    const bool live =
        Load(state, std::memory_order_relaxed) == catalogue::StateOf(generation, catalogue::RecordState::kLive);
    entry.users.store(0, std::memory_order_release);
    return !live;
  }

  const std::unique_ptr<const ReadCatalogue> catalogue_;
  const std::unique_ptr<WrittenHolds> written_;
  holds::Page& page_;
  std::atomic<uint64_t> taken_{0};
  Mutex mutex_;
  std::array<Entry, holds::kWords> entries_;  // what users share is atomic, the rest is who has the lock's
  std::array<uint32_t, kBuckets> buckets_ AB_GUARDED_BY(mutex_) = Empty();

  static constexpr std::array<uint32_t, kBuckets> Empty() {
    std::array<uint32_t, kBuckets> buckets{};
    buckets.fill(kNone);
    return buckets;
  }
};

using HoldTable = BasicHoldTable<holds::Ordering>;
using Hold = HoldTable::Hold;

}  // namespace arraybridge
