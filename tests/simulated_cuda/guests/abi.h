// SPDX-License-Identifier: Apache-2.0
// Types and constants of the driver's interface that only frameworks use. call_table_test.cc compares the signatures
// with <cudaTypedefs.h>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::simulated {

// Modules and libraries are the same here, and so are functions and kernels.
using CUmodule = struct ModuleRecord*;
using CUlibrary = CUmodule;
using CUfunction = struct FunctionRecord*;
using CUkernel = CUfunction;
using CUlinkState = struct LinkRecord*;
using CUhostFn = void (*)(void* data);
using CUstreamCallback = void (*)(cuda::CUstream stream, cuda::CUresult status, void* data);
using CUoccupancyB2DSize = size_t (*)(int block_size);

// The configuration of cuLaunchKernelEx; its attributes do not change values.
struct CUlaunchConfig {
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  cuda::CUstream stream;
  void* attributes;
  unsigned int attribute_count;
};

inline constexpr auto CUDA_ERROR_INVALID_IMAGE = static_cast<cuda::CUresult>(200);
inline constexpr auto CUDA_ERROR_NO_BINARY_FOR_GPU = static_cast<cuda::CUresult>(209);
inline constexpr auto CUDA_ERROR_FILE_NOT_FOUND = static_cast<cuda::CUresult>(301);
inline constexpr auto CUDA_ERROR_INVALID_PTX = static_cast<cuda::CUresult>(218);

inline constexpr unsigned int kJitErrorLogBuffer = 5;
inline constexpr unsigned int kJitErrorLogBufferSize = 6;
inline constexpr unsigned int kJitInputPtx = 1;

inline constexpr int kFunctionMaxThreads = 0;
inline constexpr int kFunctionSharedSize = 1;
inline constexpr int kFunctionLocalSize = 3;
inline constexpr int kFunctionRegisters = 4;
inline constexpr int kFunctionPtxVersion = 5;
inline constexpr int kFunctionBinaryVersion = 6;
inline constexpr int kFunctionMaxDynamicShared = 8;
inline constexpr int kFunctionAttributes = 16;

// Entries of the last parameter of a launch.
inline constexpr uintptr_t kLaunchBufferEnd = 0;
inline constexpr uintptr_t kLaunchBufferPointer = 1;
inline constexpr uintptr_t kLaunchBufferSize = 2;

}  // namespace arraybridge::simulated
