// SPDX-License-Identifier: Apache-2.0
// Makes and destroys cuMemAlloc's allocations, and destroys imports of legacy handles.
#pragma once

#include <cstdint>

#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {

// Allocates device memory on a physical device; 0 if there is none left. REQUIRES: bytes > 0.
uint64_t Allocate(Process& process, uint64_t bytes, int physical);

// Destroys the allocation or import whose range begins at `base`: freed bytes become 0xDD, and its nonce becomes
// invalid. REQUIRES: it exists and is not a mapping of cuMemMap.
void Destroy(Process& process, uint64_t base);

}  // namespace arraybridge::simulated
