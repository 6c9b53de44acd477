// SPDX-License-Identifier: Apache-2.0
// Runs a launch: its blocks one after another, the threads of a block in turns.
#pragma once

#include <string>

#include "proto/boundary/cuda/driver_abi.h"
#include "tests/simulated_cuda/ptx/thread.h"

namespace arraybridge::simulated::ptx {

// The launch's result; `why` explains an error.
cuda::CUresult Run(Grid& grid, std::string* why);

}  // namespace arraybridge::simulated::ptx
