// SPDX-License-Identifier: Apache-2.0
// Declarations of every call: the calls of our Driver, from its own table, and the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/boundary/cuda/driver_abi.h"
#include "proto/boundary/cuda/driver_symbols.h"
#include "tests/simulated_cuda/call_table.h"
#include "tests/simulated_cuda/guests/abi.h"

#define SIM_API extern "C" __attribute__((visibility("default"))) arraybridge::cuda::CUresult

namespace arraybridge::simulated {

using namespace cuda;  // this implements that interface

#define SIM_DECLARE(name, version, suffix, need, parameters) SIM_API cu##name##suffix parameters;
AB_DRIVER_CALLS(SIM_DECLARE)
#undef SIM_DECLARE
#define SIM_DECLARE(base, version, exported, parameters) SIM_API exported parameters;
SIM_GUEST_CALLS(SIM_DECLARE)
SIM_KERNEL_CALLS(SIM_DECLARE)
#undef SIM_DECLARE

}  // namespace arraybridge::simulated
