// The IPC backend owns GPU memory whose handle is a cudaIpcMemHandle: 64 bytes with which any process of the same PID
// namespace opens it. Freed too early it is undefined behaviour in them, so the Broker keeps a block while one of them
// may have it open.
#pragma once

#include <memory>
#include <vector>

#include "daemon/memory/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge {

// Serves those of `gpus` that do not refuse it, and says why not the others.
std::unique_ptr<MemoryBackend> MakeCudaIpcBackend(std::vector<std::shared_ptr<CudaGpu>> gpus);

}  // namespace arraybridge
