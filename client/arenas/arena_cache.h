// SPDX-License-Identifier: Apache-2.0
// The arenas that this process reads. Each is mapped once, and its descriptor is kept for further mappings. The key is
// id and generation, never a descriptor's number or the order of messages. Arenas that no array uses are kept for a
// while, within bounds; the least recently used arena is unmapped first.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/arenas/kept/kept_mappings.h"
#include "client/arenas/private_ranges.h"
#include "client/memory/memory_mapper.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// The leases of one arena that the broker has granted by calls, by their ranges. Thread-safe.
class LeasedRanges {
 public:
  struct Leased {
    uint64_t lease = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  void Add(uint64_t offset, uint64_t size, uint64_t lease) AB_EXCLUDES(mutex_);
  // Does nothing if the lease is not here.
  void Remove(uint64_t offset, uint64_t lease) AB_EXCLUDES(mutex_);
  // One whose range contains these bytes.
  std::optional<Leased> Find(uint64_t offset, uint64_t bytes) const AB_EXCLUDES(mutex_);

 private:
  static constexpr int kLooksMax = 64;  // shares that begin before the bytes: forwards may overlap

  mutable Mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> sizes_ AB_GUARDED_BY(mutex_);  // by offset and lease
};

struct ReadArena {
  Handle handle;                    // the whole arena, with its descriptor
  std::unique_ptr<Mapping> shared;  // read-only
  PrivateRanges ranges;             // of host memory
  LeasedRanges leases;              // of host memory
  MemoryMapper* mapper = nullptr;   // for its kind of handle
  KeptMappings kept;                // of host memory
};

// Thread-safe.
class ArenaCache {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  struct Bounds {
    uint64_t arenas = 0;
    uint64_t bytes = 0;
  };

  explicit ArenaCache(Bounds bounds) : bounds_(bounds) {}

  // Null if it is not mapped.
  std::shared_ptr<ReadArena> Find(uint64_t arena, uint64_t generation);
  // Within one life of the broker an id identifies the arena.
  std::shared_ptr<ReadArena> Find(uint64_t arena);
  using Place = MappedRanges::Place;
  // The host memory of an arena that is mapped at [data, data + bytes); nothing: it is other memory.
  std::optional<Place> FindAt(const void* data, uint64_t bytes) const { return mapped_->Find(data, bytes); }
  // Returns the arena to use: this one, or the same arena if another thread has mapped it meanwhile.
  std::shared_ptr<ReadArena> Add(const std::shared_ptr<ReadArena>& arena);
  // True if the cache exceeds its bounds and TakeIdle may help.
  bool full() const;
  // Unmaps the arenas that no array has used since `before`. While the cache exceeds its bounds, it also unmaps other
  // arenas that no array uses. Returns their ids.
  std::vector<uint64_t> TakeIdle(Instant before);
  uint64_t count() const;

 private:
  struct Entry {
    std::shared_ptr<ReadArena> arena;
    Instant used;
    uint64_t turn = 0;  // number of its last use; the smallest is the least recently used
  };
  using Entries = std::map<std::pair<uint64_t, uint64_t>, Entry>;

  void Touch(Entry& entry) AB_REQUIRES(mutex_);
  bool OverBounds() const AB_REQUIRES(mutex_) { return entries_.size() > bounds_.arenas || bytes_ > bounds_.bytes; }
  Entries::iterator Take(Entries::iterator entry, std::vector<std::shared_ptr<ReadArena>>& dead,
                         std::vector<uint64_t>& ids) AB_REQUIRES(mutex_);

  const Bounds bounds_;
  const std::shared_ptr<MappedRanges> mapped_ = std::make_shared<MappedRanges>();
  mutable Mutex mutex_;
  Entries entries_ AB_GUARDED_BY(mutex_);
  uint64_t bytes_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t turns_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge
