// The arenas that this process reads: each is mapped once, and its descriptor kept for private mappings. Known by id
// and generation, never by a descriptor's number or the order of messages. What no array uses is kept for a while,
// within bounds: of all that is mapped the least recently used goes first.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "client/memory/memory_mapper.h"
#include "client/private_ranges.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

struct ReadArena {
  Handle handle;                    // the whole arena, with its descriptor
  std::unique_ptr<Mapping> shared;  // read-only
  PrivateRanges ranges;             // of host memory, unused at present
  MemoryMapper* mapper = nullptr;   // of its kind
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
  // In one life of the broker an id is enough.
  std::shared_ptr<ReadArena> Find(uint64_t arena);
  // The one to use: this, or the same arena that another thread has mapped meanwhile.
  std::shared_ptr<ReadArena> Add(const std::shared_ptr<ReadArena>& arena);
  // More is mapped than should be, and TakeIdle may change that.
  bool full() const;
  // Unmaps the arenas that no array uses and none did since `before`, and, while more is mapped than should be, others
  // that no array uses. Their ids.
  std::vector<uint64_t> TakeIdle(Instant before);
  uint64_t count() const;

 private:
  struct Entry {
    std::shared_ptr<ReadArena> arena;
    Instant used;
    uint64_t turn = 0;  // of its last use: the smallest is the one used least recently
  };
  using Entries = std::map<std::pair<uint64_t, uint64_t>, Entry>;

  void Touch(Entry& entry) AB_REQUIRES(mutex_);
  bool OverBounds() const AB_REQUIRES(mutex_) { return entries_.size() > bounds_.arenas || bytes_ > bounds_.bytes; }
  Entries::iterator Take(Entries::iterator entry, std::vector<std::shared_ptr<ReadArena>>& dead,
                         std::vector<uint64_t>& ids) AB_REQUIRES(mutex_);

  const Bounds bounds_;
  mutable Mutex mutex_;
  Entries entries_ AB_GUARDED_BY(mutex_);
  uint64_t bytes_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t turns_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge
