// SPDX-License-Identifier: Apache-2.0
// The VMM mapper maps GPU memory that arrives as a descriptor: writable for its one producer, read-only for all
// readers. The driver counts mappings, so the memory exists while it is mapped, even after its owner has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

// `library`: the path of the CUDA driver, empty for the system's. The first call loads it.
std::unique_ptr<MemoryMapper> MakeCudaVmmMapper(std::string library = {});

// How many times the driver did not map memory read-only for a reader, which was then mapped writable.
uint64_t MapsThatReadersMayWrite();

}  // namespace arraybridge
