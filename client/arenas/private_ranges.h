// PrivateRanges has the copy-on-write mappings of one arena: it finds those in use by address, and keeps those that
// readers gave back unmodified. The next reader of the same range gets a mapping whose pages are present already.
// Reading 64 MiB through a new mapping costs 3.5 ms of page faults; through a kept one it costs none. A modified
// mapping is never reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "client/memory/memory_mapper.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

class PrivateRanges;

// A mapping that its PrivateRanges finds as long as it exists. REQUIRES: the PrivateRanges outlive it.
class PrivateMapping {
 public:
  PrivateMapping(PrivateRanges& of, uint64_t offset, std::unique_ptr<Mapping> mapping);
  ~PrivateMapping();
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;

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
  // An unused mapping of `size` bytes at `offset`, or null.
  std::unique_ptr<PrivateMapping> Take(uint64_t offset, uint64_t size) AB_EXCLUDES(mutex_);
  // Keeps the mapping, or unmaps it if a reader wrote to it. Asks the kernel for that, which takes long for large
  // ranges.
  void GiveBack(std::unique_ptr<PrivateMapping> range) AB_EXCLUDES(mutex_);
  // The offset in the arena of the bytes that are mapped at [data, data + bytes); nothing: no mapping contains them.
  std::optional<uint64_t> Find(const std::byte* data, uint64_t bytes) const AB_EXCLUDES(mutex_);

 private:
  friend class PrivateMapping;
  static constexpr size_t kRangesMax = 8;  // beyond this number the oldest is unmapped

  void Add(const PrivateMapping& mapping) AB_EXCLUDES(mutex_);
  void Remove(const PrivateMapping& mapping) AB_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::atomic<bool> any_{false};  // without it there is nothing to find
  // By address: offset and size.
  std::map<const std::byte*, std::pair<uint64_t, uint64_t>> all_ AB_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<PrivateMapping>> clean_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
