// SPDX-License-Identifier: Apache-2.0
// The HostReach of a GPU, according to the driver.
#pragma once

#include "proto/boundary/cuda/driver.h"
#include "proto/boundary/one_memory/host_reach.h"

namespace arraybridge::cuda {

// Only queries attributes; creates no context.
HostReach ReachOf(const Driver& driver, CUdevice device);

}  // namespace arraybridge::cuda
