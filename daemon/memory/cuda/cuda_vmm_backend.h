// SPDX-License-Identifier: Apache-2.0
// The VMM backend owns GPU memory whose handle is a descriptor. The driver counts descriptors and mappings, so memory
// that the daemon frees stays valid for processes that still map it. The next daemon adopts the memory of a killed one
// by a stored descriptor.
#pragma once

#include <memory>
#include <vector>

#include "daemon/memory/cuda/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

// Serves the GPUs that do not refuse this kind of handle, and reports the reason for each of the others.
std::unique_ptr<MemoryBackend> MakeCudaVmmBackend(std::vector<std::shared_ptr<CudaGpu>> gpus);

}  // namespace arraybridge::daemon
