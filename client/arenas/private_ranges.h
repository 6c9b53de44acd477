// SPDX-License-Identifier: Apache-2.0
// PrivateRanges keeps the copy-on-write mappings of one arena that readers gave back unmodified. The next reader of the
// same range gets a mapping whose pages are present already. Reading 64 MiB through a new mapping costs 3.5 ms of page
// faults; through a kept one it costs none. A modified mapping is never reused.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "client/arenas/address_span.h"
#include "client/memory/memory_mapper.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

struct ReadArena;

// The mappings of host memory of all arenas that this process reads, by their addresses. Thread-safe.
class MappedRanges {
 public:
  // Where bytes of this process lie in broker memory.
  struct Place {
    std::shared_ptr<ReadArena> arena;
    uint64_t offset = 0;
    bool own = false;  // in a copy-on-write mapping, which may have been written
  };
  struct Range {
    uint64_t size = 0;
    std::weak_ptr<ReadArena> arena;
    uint64_t offset = 0;  // of its first byte
    bool own = false;
  };
  void Add(const std::byte* start, Range range) AB_EXCLUDES(mutex_);
  // REQUIRES: still mapped, because another thread may map the address then.
  void Remove(const std::byte* start) AB_EXCLUDES(mutex_);
  // Of the bytes at [data, data + bytes); nothing: no mapping contains them.
  std::optional<Place> Find(const void* data, uint64_t bytes) const AB_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  AddressSpan span_;                                         // written under `mutex_`
  std::map<uintptr_t, Range> ranges_ AB_GUARDED_BY(mutex_);  // by their first bytes
};

class PrivateRanges;

// A mapping that is found by its address as long as it exists. REQUIRES: the PrivateRanges outlive it.
class PrivateMapping {
 public:
  PrivateMapping(PrivateRanges& of, uint64_t offset, std::unique_ptr<Mapping> mapping);
  ~PrivateMapping();

  Mapping& mapping() { return *mapping_; }
  std::byte* data() const { return mapping_->data(); }
  uint64_t offset() const { return offset_; }  // in the arena
  uint64_t size() const { return mapping_->size(); }

 private:
  PrivateRanges& of_;
  const uint64_t offset_;
  const std::unique_ptr<Mapping> mapping_;
};

// Thread-safe.
class PrivateRanges {
 public:
  // From now on its mappings are found there, as parts of this arena. REQUIRES: called once at most, and first.
  void FindIn(std::shared_ptr<MappedRanges> mapped, std::weak_ptr<ReadArena> arena);
  // An unused mapping of `size` bytes at `offset`, or null.
  std::unique_ptr<PrivateMapping> Take(uint64_t offset, uint64_t size) AB_EXCLUDES(mutex_);
  // Keeps the mapping, or unmaps it if a reader wrote to it. Asks the kernel for that, which takes long for large
  // ranges.
  void Release(std::unique_ptr<PrivateMapping> range) AB_EXCLUDES(mutex_);

 private:
  friend class PrivateMapping;
  static constexpr size_t kRangesMax = 8;  // beyond this number the oldest is unmapped

  std::shared_ptr<MappedRanges> mapped_;
  std::weak_ptr<ReadArena> arena_;
  Mutex mutex_;
  std::deque<std::unique_ptr<PrivateMapping>> clean_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
