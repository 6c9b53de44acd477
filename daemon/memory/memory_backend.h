// The interfaces behind which memory lives: a MemoryBackend owns one kind of memory and allocates MemoryBlocks of it;
// a MemoryBlock is physical bytes that can be exported and sealed. A new kind of sharing is a new backend (and a mapper
// in client/memory), never a branch inside an old one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Destroying it gives up the broker's hold on the bytes; O(bytes), so never under a lock.
class MemoryBlock {
 public:
  virtual ~MemoryBlock() = default;

  virtual uint64_t size() const = 0;
  // A fresh descriptor each time (kind, descriptor or opaque, arena_size, device; ids are the caller's).
  // kWrite only before Seal.
  virtual Result<Handle> Export(Access access) const = 0;
  // As far as the kernel lets now: kByContract while its producer maps it, later kEnforced. Call again to get further.
  // FAILED_PRECONDITION if it cannot even be sealed against new writers.
  virtual Result<Immutability> Seal() = 0;
  // Open or mapped by somebody else, as far as KnowsHolders. The test before a Charge is returned.
  virtual bool HeldElsewhere() const = 0;
  // False where nobody can be asked: then the Broker goes by what sessions say and by whose processes live.
  virtual bool KnowsHolders() const { return true; }
  // Whether Seal can ever get to kEnforced.
  virtual bool MayBeEnforced() const { return true; }
};

// How work that takes long says that it has got further: called from the thread that does it, after every few
// megabytes. Empty: nobody asks.
using Progress = std::function<void()>;

// Thread-safe.
class MemoryBackend {
 public:
  virtual ~MemoryBackend() = default;

  virtual HandleKind kind() const = 0;
  virtual std::vector<Device> devices() const = 0;
  // Bytes that a block of `size` really takes; 0 if `size` is 0 or the answer would overflow.
  virtual uint64_t Footprint(const Device& device, uint64_t size) const = 0;
  // Blocks for as long as populating takes: call it on a worker. RESOURCE_EXHAUSTED names capacity and use.
  virtual Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) = 0;
  // The same, and says how it gets on where populating takes its time.
  virtual Result<std::unique_ptr<MemoryBlock>> AllocateWithProgress(const Device& device, uint64_t size,
                                                                    const Progress& /*progress*/) {
    return Allocate(device, size);
  }

  struct Usage {
    uint64_t capacity_bytes = 0;
    uint64_t allocated_bytes = 0;  // footprints of living blocks, cached ones included
    uint64_t cached_bytes = 0;     // of these: populated ahead of demand
  };
  virtual Usage usage(const Device& device) const = 0;
  // A device that cannot be shared by this kind, or no more.
  struct Refusal {
    Device device;
    std::string why;
    RefusalCause cause = RefusalCause::kHardware;
  };
  virtual std::vector<Refusal> refusals() const { return {}; }
  // Gives up what is cached ahead of demand. Returns the bytes freed.
  virtual uint64_t Trim() = 0;
};

}  // namespace arraybridge
