// SPDX-License-Identifier: Apache-2.0
// Types and constants of the driver's interface that only frameworks use. call_table_test.cc compares the signatures
// with <cudaTypedefs.h>.
#pragma once

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::simulated {

using CUhostFn = void (*)(void* data);
using CUstreamCallback = void (*)(cuda::CUstream stream, cuda::CUresult status, void* data);

}  // namespace arraybridge::simulated
