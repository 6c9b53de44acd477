// An Arena is a MemoryBlock and its Charge. One session may write it; that session carves allocations out of it by
// itself, and the arena validates what it is told: inside, aligned, not on top of what is still in use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "daemon/broker/ids.h"
#include "daemon/broker/quota/charge.h"
#include "daemon/broker/snapshot.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class Namespace;
struct Session;
struct Share;

class Arena {
 public:
  Arena(ArenaId id, uint64_t generation, Namespace* ns, Session* made_by, Charge charge,
        std::shared_ptr<MemoryBlock> block, Device device, HandleKind kind);

  ArenaId id() const { return id_; }
  uint64_t generation() const { return generation_; }
  Namespace* ns() const { return ns_; }
  uint64_t footprint() const { return charge_.bytes(); }
  const std::shared_ptr<MemoryBlock>& block() const { return block_; }

  // Without a descriptor: a range of it, or all of it.
  Handle Describe(uint64_t offset, uint64_t size) const;
  Handle Describe() const { return Describe(0, size_); }
  HandleKind kind() const { return kind_; }
  const Device& device() const { return device_; }

  // INVALID_ARGUMENT, or FAILED_PRECONDITION if it overlaps a share that is still there.
  Status CheckRange(uint64_t offset, uint64_t size) const;
  // REQUIRES: CheckRange says OK.
  void Carve(uint64_t offset, Share* share) { shares_.emplace(offset, share); }
  void Free(uint64_t offset) { shares_.erase(offset); }
  bool empty() const { return shares_.empty(); }
  // By offset; every one of them is still in use.
  const std::map<uint64_t, Share*>& shares() const { return shares_; }

  std::optional<Immutability> immutability;  // nothing: not sealed yet
  // What opens it, where that is no descriptor. A secret: only for sessions that write or lease it.
  std::string opaque;
  // The session that may write it and publish out of it; null once that has given it back or gone.
  Session* writer = nullptr;
  // The session that asked for it, while that lives: its limits count this arena.
  Session* maker = nullptr;
  // Sessions that were given a read descriptor and have not said that they dropped the mapping.
  std::unordered_set<Session*> readers;
  FreeCause freed_by = FreeCause::kRelease;  // once it is dying

 private:
  const ArenaId id_;
  const uint64_t generation_;
  Namespace* const ns_;
  const Device device_;
  const HandleKind kind_;
  const uint64_t size_;
  const Charge charge_;  // before the block, so that it is returned after the bytes are gone
  const std::shared_ptr<MemoryBlock> block_;
  std::map<uint64_t, Share*> shares_;
};

}  // namespace arraybridge
