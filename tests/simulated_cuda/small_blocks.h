// SmallBlocks places cuMemAlloc's small allocations side by side in blocks of 2 MiB, as hardware does: who exports one
// of them exposes its neighbours.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "tests/simulated_cuda/address_space.h"
#include "tests/simulated_cuda/memory_block.h"

namespace arraybridge::simulated {

class SmallBlocks {
 public:
  struct Place {
    std::shared_ptr<MemoryBlock> block;
    uint64_t base = 0;  // the block's device address
    uint64_t offset = 0;
  };
  // REQUIRES: 0 < size < kGranularity. A null block if the device has no memory.
  Place Allocate(AddressSpace& space, uint64_t size, int device, uint64_t* used, uint64_t memory);
  void Free(AddressSpace& space, uint64_t base, uint64_t offset, uint64_t size);

 private:
  struct Shared {
    std::shared_ptr<MemoryBlock> block;
    uint64_t base = 0;
    std::vector<bool> taken;  // by unit
    uint64_t units = 0;       // taken
  };
  std::list<Shared> shared_;
};

}  // namespace arraybridge::simulated
