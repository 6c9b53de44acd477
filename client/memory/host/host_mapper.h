// SPDX-License-Identifier: Apache-2.0
// The host mapper maps sealed memfds: an arena, writable for its one producer and read-only for all readers, or a
// copy-on-write range of one for frameworks that do not support read-only memory.
#pragma once

#include <memory>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

std::unique_ptr<MemoryMapper> MakeHostMapper();

}  // namespace arraybridge
