// SPDX-License-Identifier: Apache-2.0
// The interfaces to memory: a MemoryBackend owns one kind of memory and allocates MemoryBlocks of it; a MemoryBlock is
// physical bytes that can be exported and sealed. A new kind of sharing is a new backend (and a mapper in
// client/memory), never a branch inside an old one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Its destructor releases the broker's hold on the bytes, in O(bytes), so it must not run under a lock.
class MemoryBlock {
 public:
  virtual ~MemoryBlock() = default;

  virtual uint64_t size() const = 0;
  // Opens a fresh descriptor each time. Fills in kind, descriptor or opaque, arena_size and device; the ids are set by
  // the caller. kWrite is allowed only before Seal.
  virtual Result<Handle> Export(Access access) const = 0;
  // Seals as far as the kernel allows now: kByContract while the producer maps the block, later kEnforced. A later call
  // may get further. FAILED_PRECONDITION: the block cannot even be sealed against new writers.
  virtual Result<Immutability> Seal() = 0;
  // Whether another process has the block open or mapped, as far as KnowsHolders. Checked before a Charge is returned.
  virtual bool HeldElsewhere() const = 0;
  // False if the kernel or driver cannot tell. The Broker then relies on what sessions report and on which processes
  // live.
  virtual bool KnowsHolders() const { return true; }
  // Whether Seal can ever reach kEnforced.
  virtual bool MayBeEnforced() const { return true; }
  // How far the block is sealed; nullopt: not at all, or the kernel cannot tell.
  virtual std::optional<Immutability> sealed() const { return std::nullopt; }
  // A descriptor with which Adopt makes the block again, in another process, after this one has died. It stays the
  // block's. -1: the memory dies with this process.
  virtual int descriptor() const { return -1; }
};

// A callback with which long work reports progress: called on the thread that does the work, after every few megabytes.
// Empty: no report is wanted.
using Progress = std::function<void()>;

// Thread-safe.
class MemoryBackend {
 public:
  virtual ~MemoryBackend() = default;

  virtual HandleKind kind() const = 0;
  virtual std::vector<Device> devices() const = 0;
  // The bytes that a block of `size` really uses; 0 if `size` is 0 or the result would overflow.
  virtual uint64_t Footprint(const Device& device, uint64_t size) const = 0;
  // Blocks while the memory is populated: call it on a worker. RESOURCE_EXHAUSTED names capacity and use.
  virtual Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) = 0;
  // The same; reports progress if populating takes long.
  virtual Result<std::unique_ptr<MemoryBlock>> AllocateWithProgress(const Device& device, uint64_t size,
                                                                    const Progress& /*progress*/) {
    return Allocate(device, size);
  }

  // Makes a block of the memory that another block has, or had in a process that has died. `descriptor`: from
  // MemoryBlock::descriptor. FAILED_PRECONDITION: it is no memory of this size and kind. UNIMPLEMENTED: memory of this
  // kind dies with its process.
  virtual Result<std::unique_ptr<MemoryBlock>> Adopt(const Device& /*device*/, uint64_t /*size*/,
                                                     UniqueFd /*descriptor*/) {
    return Unimplemented("memory of kind ", NameOf(kind()), " ends with the process that allocated it");
  }

  struct Usage {
    uint64_t capacity_bytes = 0;
    uint64_t allocated_bytes = 0;  // footprints of all blocks, including cached ones
    uint64_t cached_bytes = 0;     // the part of allocated_bytes that was populated ahead of demand
  };
  virtual Usage usage(const Device& device) const = 0;
  // A device that this kind of handle cannot share, or can no longer share.
  struct Refusal {
    Device device;
    std::string why;
    RefusalCause cause = RefusalCause::kHardware;
  };
  virtual std::vector<Refusal> refusals() const { return {}; }
  // Frees the blocks that are cached ahead of demand. Returns the number of bytes freed.
  virtual uint64_t Trim() = 0;
};

}  // namespace arraybridge::daemon
