// SPDX-License-Identifier: Apache-2.0
// Destroys cuMemAlloc's allocations and imports of legacy handles.
#pragma once

#include <cstdint>

#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {

// Destroys the allocation or import whose range begins at `base`: freed bytes become 0xDD, and its nonce becomes
// invalid. REQUIRES: it exists and is not a mapping of cuMemMap.
void Destroy(Process& process, uint64_t base);

}  // namespace arraybridge::simulated
