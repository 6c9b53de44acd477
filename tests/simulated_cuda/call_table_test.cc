// SPDX-License-Identifier: Apache-2.0
// Compares the simulated driver's calls with the toolkit's types: the version exists and has as many parameters of
// these sizes. Compiled only if a toolkit of 13.0 or later is found.
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include "proto/boundary/cuda/driver_abi.h"
#include "proto/boundary/cuda/driver_symbols.h"
#include "tests/simulated_cuda/call_table.h"

// Included after our declarations, because its macros rename calls.
#include <cuda.h>
#include <cudaTypedefs.h>

namespace arraybridge::cuda {
namespace {

template <class Result, class... Parameters>
constexpr auto ShapeOf(Result (*)(Parameters...)) {
  return std::integer_sequence<size_t, sizeof(Result), sizeof(Parameters)...>();
}
template <class Ours, class Theirs>
constexpr bool kSameShape = std::is_same_v<decltype(ShapeOf(Ours())), decltype(ShapeOf(Theirs()))>;

// <cudaTypedefs.h> has no types for these calls.
using PFN_cuCtxRecordEvent_v12050 = CUresult (*)(CUcontext, CUevent);

TEST(CallTableTest, EveryCallHasTheSignatureOfItsVersion) {
  int compared = 0;
#define SIM_COMPARE(name, version, suffix, need, parameters)                                \
  static_assert(kSameShape<CUresult(*) parameters, PFN_cu##name##_v##version>, "cu" #name); \
  ++compared;
  AB_DRIVER_CALLS(SIM_COMPARE)
#undef SIM_COMPARE
#define SIM_COMPARE(base, version, exported, parameters)                             \
  static_assert(kSameShape<CUresult(*) parameters, PFN_##base##_v##version>, #base); \
  ++compared;
  SIM_GUEST_CALLS(SIM_COMPARE)
  SIM_KERNEL_CALLS(SIM_COMPARE)
#undef SIM_COMPARE
  EXPECT_GT(compared, 140);
}

}  // namespace
}  // namespace arraybridge::cuda
