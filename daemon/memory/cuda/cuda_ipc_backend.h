// SPDX-License-Identifier: Apache-2.0
// The IPC backend owns GPU memory whose handle is a cudaIpcMemHandle: 64 bytes with which any process of the same PID
// namespace can open it. Freeing the memory while another process has it open is undefined behaviour there, so the
// Broker keeps a block while any process may have it open.
#pragma once

#include <memory>
#include <vector>

#include "daemon/memory/cuda/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

// Serves the GPUs that do not refuse this kind of handle, and reports the reason for each of the others.
std::unique_ptr<MemoryBackend> MakeCudaIpcBackend(std::vector<std::shared_ptr<CudaGpu>> gpus);

}  // namespace arraybridge::daemon
