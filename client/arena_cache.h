// The arenas that this process reads: each is mapped once, and its descriptor kept for private mappings. Known by id
// and generation, never by a descriptor's number or the order of messages.
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
};

// Thread-safe.
class ArenaCache {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // Null if it is not mapped.
  std::shared_ptr<ReadArena> Find(uint64_t arena, uint64_t generation);
  // In one life of the broker an id is enough.
  std::shared_ptr<ReadArena> Find(uint64_t arena);
  // The one to use: this, or the same arena that another thread has mapped meanwhile.
  std::shared_ptr<ReadArena> Add(const std::shared_ptr<ReadArena>& arena);
  // Unmaps the arenas that no array uses and none did since `before`, those of host memory alone unless `devices_too`;
  // their ids.
  std::vector<uint64_t> TakeIdle(Instant before, bool devices_too);
  uint64_t count() const;

 private:
  struct Entry {
    std::shared_ptr<ReadArena> arena;
    Instant used;
  };

  mutable Mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, Entry> entries_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
