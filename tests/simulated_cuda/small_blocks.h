// SPDX-License-Identifier: Apache-2.0
// SmallBlocks places cuMemAlloc's small allocations next to each other in blocks of 2 MiB, as hardware does: exporting
// one of them exposes its neighbours.
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
  // REQUIRES: 0 < size < kGranularity. Returns a null block if the device has no memory.
  Place Allocate(AddressSpace& space, uint64_t size, int device, uint64_t* used, uint64_t memory);
  void Free(AddressSpace& space, uint64_t base, uint64_t offset, uint64_t size);

 private:
  struct Shared {
    std::shared_ptr<MemoryBlock> block;
    uint64_t base = 0;
    std::vector<bool> taken;  // by unit
    uint64_t units = 0;       // number of units in use
  };
  std::list<Shared> shared_;
};

}  // namespace arraybridge::simulated
