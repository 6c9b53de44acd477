// SPDX-License-Identifier: Apache-2.0
// The host mapper maps sealed memfds. An arena is writable for its one producer and read-only for all readers.
// Frameworks that do not support read-only memory get a copy-on-write range of one.
#pragma once

#include <memory>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

std::unique_ptr<MemoryMapper> MakeHostMapper();

}  // namespace arraybridge
