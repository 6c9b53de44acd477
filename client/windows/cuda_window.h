// SPDX-License-Identifier: Apache-2.0
// A window over memory of a GPU that arrived as a descriptor (cuda_vmm): a range of addresses in which one arena after
// the other is mapped. A mapping cannot begin inside of an arena, so the window shows whole arenas.
#pragma once

#include <memory>

#include "client/windows/window_memory.h"

namespace arraybridge {

// A window that shows nothing yet, for slabs like this one: those at the same place of an arena of the same size, as
// the slabs of large bundles are, have this layout. Its Move waits for the work of this process on the GPU.
// UNIMPLEMENTED, NOT_HOST_MEMORY: the memory has a cudaIpcMemHandle. RESOURCE_EXHAUSTED and other errors of the driver.
Result<std::unique_ptr<WindowMemory>> GpuWindowFor(const LeasedSlab& first);

}  // namespace arraybridge
