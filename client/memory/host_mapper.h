// The host mapper maps sealed memfds: an arena writable for its one producer, read-only for everybody else, or a range
// of it copy-on-write for a framework that does not know read-only memory.
#pragma once

#include <memory>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

std::unique_ptr<MemoryMapper> MakeHostMapper();

}  // namespace arraybridge
