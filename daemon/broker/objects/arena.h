// SPDX-License-Identifier: Apache-2.0
// An Arena is a MemoryBlock and its Charge. One session may write it and carves allocations out of it by itself. The
// arena validates each published range: it is inside the arena, aligned, and overlaps no share that is still in use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "daemon/broker/ledger/charge.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/snapshot.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

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

  // A handle of a range, or of the whole arena, without a descriptor.
  Handle Describe(uint64_t offset, uint64_t size) const;
  Handle Describe() const { return Describe(0, size_); }
  HandleKind kind() const { return kind_; }
  bool is_on_disk() const { return kind_ == HandleKind{}; }  // the bytes of its share are in a file
  const Device& device() const { return device_; }

  // INVALID_ARGUMENT: the range is empty, not aligned, or not inside the arena.
  Status CheckInside(uint64_t offset, uint64_t size) const;
  // As CheckInside, or FAILED_PRECONDITION if the range overlaps a share that still exists.
  Status CheckRange(uint64_t offset, uint64_t size) const;
  // REQUIRES: CheckRange says OK.
  void Carve(uint64_t offset, Share* share) { shares_.emplace_hint(shares_.end(), offset, share); }
  void Free(uint64_t offset) { shares_.erase(offset); }
  void AddForward(Share* share) { forwards_.insert(share); }
  void DropForward(Share* share) { forwards_.erase(share); }
  bool empty() const { return shares_.empty() && forwards_.empty(); }
  // By offset; each one is still in use.
  const std::map<uint64_t, Share*>& shares() const { return shares_; }
  // Shares that use ranges of others, or of entries of direct channels.
  const std::unordered_set<Share*>& forwards() const { return forwards_; }

  std::optional<Immutability> immutability;  // nullopt: not sealed yet
  Status not_sealed;                         // why the last attempt failed
  // The secret that opens the arena if it is not opened by a descriptor. Only for sessions that write or lease the
  // arena.
  std::string opaque;
  // The session that may write the arena and publish from it; null after it has given the arena back or ended.
  Session* writer = nullptr;
  // The session that allocated the arena, while it lives: its limits count the arena.
  Session* maker = nullptr;
  // Sessions that received a read descriptor and have not reported that they dropped the mapping.
  std::unordered_set<Session*> readers;
  FreeCause freed_by = FreeCause::kRelease;  // set when the arena begins to die
  uint32_t maker_uid = 0;
  uint64_t request = 0;  // the maker's request that allocated it; 0: unknown
  uint32_t record = 0;   // in the journal
  StoreGuard stored;

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
  std::unordered_set<Share*> forwards_;
};

}  // namespace arraybridge::daemon
