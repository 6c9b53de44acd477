// SPDX-License-Identifier: Apache-2.0
// Compares our copies of the driver's types with the toolkit's: sizes, offsets, numbers, and the signature of every
// call. Compiled only if the toolkit is found; driver_abi_newer_test.cc covers names that <cuda.h> has since 12.5.
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include "proto/boundary/cuda/driver.h"

// Included after our declarations, because its macros rename calls.
#include <cuda.h>
#include <cudaTypedefs.h>

namespace ours = arraybridge::cuda;

namespace {

#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(::type) && alignof(ours::type) == alignof(::type))
SAME_SIZE(CUdevice);
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUmemGenericAllocationHandle);
SAME_SIZE(CUcontext);
SAME_SIZE(CUstream);
SAME_SIZE(CUevent);
SAME_SIZE(CUuuid);
SAME_SIZE(CUresult);
SAME_SIZE(CUdevice_attribute);
SAME_SIZE(CUpointer_attribute);
SAME_SIZE(CUmemLocation);
SAME_SIZE(CUmemAccessDesc);
SAME_SIZE(CUmemAllocationProp);
SAME_SIZE(CUstreamCaptureMode);
SAME_SIZE(CUstreamCaptureStatus);
SAME_SIZE(CUdriverProcAddressQueryResult);
static_assert(sizeof(ours::CUipcMemHandle) == sizeof(::CUipcMemHandle));
static_assert(sizeof(ours::CUipcEventHandle) == sizeof(::CUipcEventHandle));

#define SAME_OFFSET(type, member) static_assert(offsetof(ours::type, member) == offsetof(::type, member))
SAME_OFFSET(CUmemLocation, type);
SAME_OFFSET(CUmemLocation, id);
SAME_OFFSET(CUmemAccessDesc, location);
SAME_OFFSET(CUmemAccessDesc, flags);
SAME_OFFSET(CUmemAllocationProp, type);
SAME_OFFSET(CUmemAllocationProp, requestedHandleTypes);
SAME_OFFSET(CUmemAllocationProp, location);
SAME_OFFSET(CUmemAllocationProp, win32HandleMetaData);
SAME_OFFSET(CUmemAllocationProp, allocFlags);
SAME_OFFSET(CUmemAllocationProp, allocFlags.compressionType);
SAME_OFFSET(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_OFFSET(CUmemAllocationProp, allocFlags.usage);
SAME_OFFSET(CUmemAllocationProp, allocFlags.reserved);

#define SAME(name) static_assert(static_cast<uint64_t>(ours::name) == static_cast<uint64_t>(::name))
SAME(CUDA_SUCCESS);
SAME(CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_ERROR_DEINITIALIZED);
SAME(CUDA_ERROR_STUB_LIBRARY);
SAME(CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(CUDA_ERROR_NO_DEVICE);
SAME(CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ERROR_MAP_FAILED);
SAME(CUDA_ERROR_ALREADY_MAPPED);
SAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME(CUDA_ERROR_OPERATING_SYSTEM);
SAME(CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_ERROR_NOT_FOUND);
SAME(CUDA_ERROR_NOT_READY);
SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CUDA_ERROR_ASSERT);
SAME(CUDA_ERROR_TOO_MANY_PEERS);
SAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME(CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME(CUDA_ERROR_INVALID_PC);
SAME(CUDA_ERROR_LAUNCH_FAILED);
SAME(CUDA_ERROR_NOT_PERMITTED);
SAME(CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
SAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(CUDA_ERROR_CAPTURED_EVENT);
SAME(CUDA_ERROR_EXTERNAL_DEVICE);
SAME(CUDA_ERROR_UNKNOWN);

SAME(CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
SAME(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
SAME(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
SAME(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
SAME(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
SAME(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
SAME(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);

SAME(CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
SAME(CU_POINTER_ATTRIBUTE_HOST_POINTER);
SAME(CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(CU_POINTER_ATTRIBUTE_MAPPED);
SAME(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SAME(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
SAME(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME(CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
SAME(CU_MEMORYTYPE_HOST);
SAME(CU_MEMORYTYPE_DEVICE);

SAME(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_MEM_HANDLE_TYPE_NONE);
SAME(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(CU_GET_PROC_ADDRESS_SUCCESS);
SAME(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
static_assert(ours::kIpcMemLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(ours::kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(ours::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(ours::kEventInterprocess == CU_EVENT_INTERPROCESS);
static_assert(ours::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(ours::kMemHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(ours::kMemHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(ours::kMemHostRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY);

TEST(DriverAbiTest, PredefinedStreamsHaveTheirValues) {
  EXPECT_EQ(ours::kStreamLegacy, reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(ours::kStreamPerThread, reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD));
}

// Compares the number of parameters and the size of each; does not compare what pointers point to.
template <class Result, class... Parameters>
constexpr auto ShapeOf(Result (*)(Parameters...)) {
  return std::integer_sequence<size_t, sizeof(Result), sizeof(Parameters)...>();
}
template <class Ours, class Theirs>
constexpr bool kSameShape = std::is_same_v<decltype(ShapeOf(Ours())), decltype(ShapeOf(Theirs()))>;

static_assert(!kSameShape<int (*)(int, void*), int (*)(int, int)>, "the comparison can fail");

#define COMPARE_kRequired(name, version)                                                     \
  static_assert(kSameShape<decltype(ours::Driver::name), PFN_cu##name##_v##version>, #name); \
  ++compared;
#define COMPARE_kOptional(name, version)
#define COMPARE(name, version, suffix, need, parameters) COMPARE_##need(name, version)

TEST(DriverAbiTest, EveryCallHasTheSignatureOfItsVersion) {
  int compared = 0;
  AB_DRIVER_SYMBOLS(COMPARE)
  EXPECT_GT(compared, 50);
  static_assert(kSameShape<decltype(ours::Driver::StreamWriteValue64), PFN_cuStreamWriteValue64_v11070>);
  static_assert(kSameShape<decltype(ours::Driver::StreamWaitValue64), PFN_cuStreamWaitValue64_v11070>);
}

}  // namespace
