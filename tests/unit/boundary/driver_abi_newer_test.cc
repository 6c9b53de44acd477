// SPDX-License-Identifier: Apache-2.0
// The part of driver_abi_test.cc that needs <cuda.h> of 12.8 or later, for names that earlier versions lack.
#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

#include "proto/boundary/cuda/driver.h"

// Included after our declarations, because its macros rename calls.
#include <cuda.h>

namespace ours = arraybridge::cuda;

namespace {

#define SAME(name) static_assert(static_cast<uint64_t>(ours::name) == static_cast<uint64_t>(::name))
SAME(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
SAME(CUDA_ERROR_CONTAINED);
SAME(CUDA_ERROR_TENSOR_MEMORY_LEAK);
SAME(CU_MEM_HANDLE_TYPE_FABRIC);

TEST(DriverAbiNewerTest, RecordingOnAContextTakesTwoPointers) {
  static_assert(std::is_invocable_v<decltype(&::cuCtxRecordEvent), ::CUcontext, ::CUevent>);
  static_assert(std::is_invocable_v<decltype(ours::Driver::CtxRecordEvent), ours::CUcontext, ours::CUevent>);
}

}  // namespace
