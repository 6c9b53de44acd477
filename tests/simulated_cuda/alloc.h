// Ends of cuMemAlloc's allocations and of legacy handles' imports.
#pragma once

#include <cstdint>

#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {

// Gives up the allocation or import whose range begins at `base`: freed bytes become 0xDD, its nonce ends.
// REQUIRES: there is one, and it is no mapping of cuMemMap's.
void Destroy(Process& process, uint64_t base);

}  // namespace arraybridge::simulated
