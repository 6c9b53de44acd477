// SPDX-License-Identifier: Apache-2.0
// The HostReach of a GPU says whether its work can use host memory where it lies, according to the driver.
#pragma once

#include <string>

#include <arraybridge/one_memory/one_memory.h>

#include "proto/boundary/cuda/driver.h"

namespace arraybridge {

// Only queries attributes; creates no context.
HostReach HostReachOf(const cuda::Driver& driver, cuda::CUdevice device);

// "has one memory with the host", for people.
std::string TextOf(const HostReach& reach);

}  // namespace arraybridge
