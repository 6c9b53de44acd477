// The VMM backend owns GPU memory whose handle is a descriptor: the driver counts descriptors and mappings, so no early
// end of ours pulls bytes from under anybody.
#pragma once

#include <memory>
#include <vector>

#include "daemon/memory/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge {

// Serves those of `gpus` that do not refuse it, and says why not the others.
std::unique_ptr<MemoryBackend> MakeCudaVmmBackend(std::vector<std::shared_ptr<CudaGpu>> gpus);

}  // namespace arraybridge
