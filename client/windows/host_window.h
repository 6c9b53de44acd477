// SPDX-License-Identifier: Apache-2.0
// A window over host memory: its file is mapped at one address after the other, and page tables are moved.
#pragma once

#include <memory>

#include "client/windows/window_memory.h"

namespace arraybridge {

// A window over host memory that shows nothing yet, for slabs like this one. RESOURCE_EXHAUSTED.
Result<std::unique_ptr<WindowMemory>> HostWindowFor(const LeasedSlab& first);

}  // namespace arraybridge
