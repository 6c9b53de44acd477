// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "client/windows/window_memory.h"

namespace arraybridge {

// A window over host memory that shows nothing yet, for slabs like this one. RESOURCE_EXHAUSTED.
Result<std::unique_ptr<WindowMemory>> HostWindowFor(const LeasedSlab& first);

}  // namespace arraybridge
