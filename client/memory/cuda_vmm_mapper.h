// The VMM mapper maps GPU memory that arrives as a descriptor: writable for the one producer, read-only for everybody
// else. The driver counts mappings, so the bytes stay while they are mapped, whatever becomes of the owner.
#pragma once

#include <memory>
#include <string>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

// `library`: the path of the CUDA driver, empty for the system's. Nothing is loaded before the first call.
std::unique_ptr<MemoryMapper> MakeCudaVmmMapper(std::string library = {});

}  // namespace arraybridge
