// SPDX-License-Identifier: Apache-2.0
// The IPC mapper opens GPU memory by its 64-byte cudaIpcMemHandle. Such memory cannot be mapped read-only, and the
// owner must keep it until this process has closed it. It works only within one PID namespace.
#pragma once

#include <memory>
#include <string>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

// `library`: the path of the CUDA driver, empty for the system's. The first call loads it.
std::unique_ptr<MemoryMapper> MakeCudaIpcMapper(std::string library = {});

}  // namespace arraybridge
