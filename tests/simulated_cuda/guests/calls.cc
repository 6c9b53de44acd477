// SPDX-License-Identifier: Apache-2.0
// Calls that only real frameworks make. They are as lenient as the frameworks need.
#include <cstdio>
#include <vector>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/copy.h"
#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {

SIM_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

SIM_API cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", call.process.devices.Physical(device) + 1);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

SIM_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  return call.process.devices.Has(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API cuCtxPushCurrent_v2(CUcontext context) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  Context* known = call.process.devices.Known(context);
  if (known == nullptr || !known->alive()) return CUDA_ERROR_INVALID_CONTEXT;
  CurrentContexts().push_back(known);
  return CUDA_SUCCESS;
}

SIM_API cuCtxPopCurrent_v2(CUcontext* context) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  auto& stack = CurrentContexts();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = ToApi(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetDevice(CUdevice* device) {
  const Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  *device = call.context()->ordinal;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  Call call(__func__);
  if (call.refused()) return call.refused();
  const Context* known = call.process.devices.Known(context);
  if (known == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = known->ordinal;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetApiVersion(CUcontext, unsigned int* version) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  *version = 3020;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetFlags(unsigned int* flags) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  *flags = 0;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetId(CUcontext context, unsigned long long* id) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  const Context* known = call.process.devices.Known(context);
  *id = known == nullptr ? 1 : 1 + static_cast<unsigned long long>(known->ordinal);
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 0;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetLimit(size_t* value, unsigned int) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  *value = 1024;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSynchronize_v2(CUcontext) { return cuCtxSynchronize(); }

SIM_API cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int) { return cuStreamCreate(stream, flags); }

SIM_API cuStreamGetCtx(CUstream, CUcontext* context) {
  const Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  *context = ToApi(call.context());
  return CUDA_SUCCESS;
}

SIM_API cuStreamGetDevice(CUstream, CUdevice* device) { return cuCtxGetDevice(device); }

SIM_API cuStreamGetPriority(CUstream, int* priority) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  *priority = 0;
  return CUDA_SUCCESS;
}

SIM_API cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *flags = found->blocking ? 0 : kStreamNonBlocking;
  return CUDA_SUCCESS;
}

SIM_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int) { return cuEventRecord(event, stream); }

// Work takes no time here.
SIM_API cuEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const CUevent each : {begin, end}) {
    const auto found = call.process.FindEvent(__func__, each);
    if (found == nullptr || (found->flags & kEventDisableTiming) != 0 || found->Latest() == 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (found->Done() < found->Latest()) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = 0;
  return CUDA_SUCCESS;
}

SIM_API cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, begin, end);
}

SIM_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyNow({__func__, CopyKind::kByAddress, to, from, bytes});
}

SIM_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyNow({__func__, CopyKind::kHostToDevice, to, reinterpret_cast<uint64_t>(from), bytes});
}

SIM_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return CopyNow({__func__, CopyKind::kDeviceToHost, reinterpret_cast<uint64_t>(to), from, bytes});
}

SIM_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyNow({__func__, CopyKind::kDeviceToDevice, to, from, bytes});
}

SIM_API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
  return CopyNow({__func__, CopyKind::kFill, to, 0, bytes, value});
}

SIM_API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return CopyNow({__func__, CopyKind::kFill, to, 0, 2 * count, value, 2});
}

SIM_API cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return CopyNow({__func__, CopyKind::kFill, to, 0, 4 * count, value, 4});
}

SIM_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kFill, to, 0, 2 * count, value, 2}, stream);
}

SIM_API cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kFill, to, 0, 4 * count, value, 4}, stream);
}

SIM_API cuMemAllocHost_v2(void** address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

SIM_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation*, CUdeviceptr address) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  const Range* range = call.process.space.Find(address);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->access;
  return CUDA_SUCCESS;
}

// The undocumented private interface that the real libcudart requests.
SIM_API cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace arraybridge::simulated
