// The IPC mapper opens GPU memory by its cudaIpcMemHandle, 64 bytes. There is no read-only way, and the owner must keep
// the bytes until we have closed. Same PID namespace only.
#pragma once

#include <memory>
#include <string>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

// `library`: the path of the CUDA driver, empty for the system's. Nothing is loaded before the first call.
std::unique_ptr<MemoryMapper> MakeCudaIpcMapper(std::string library = {});

}  // namespace arraybridge
