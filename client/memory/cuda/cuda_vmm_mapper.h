// SPDX-License-Identifier: Apache-2.0
// The VMM mapper maps GPU memory that arrives as a descriptor: writable for its one producer, read-only for all
// readers. The driver counts mappings, so the memory exists while it is mapped, even after its owner has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/memory_mapper.h"

namespace arraybridge {

// `library`: the path of the CUDA driver, empty for the system's. The first call loads it.
std::unique_ptr<MemoryMapper> MakeCudaVmmMapper(std::string library = {});

// Lets the work of every GPU that reaches this one use a mapped range. REQUIRES: the scope of Enter lives.
Status AllowAccess(const CudaDevices& devices, int32_t ordinal, cuda::CUdeviceptr address, uint64_t bytes,
                   Access access);

// How many times the driver did not map memory read-only for a reader, which was then mapped writable.
uint64_t MapsThatReadersMayWrite();

}  // namespace arraybridge
