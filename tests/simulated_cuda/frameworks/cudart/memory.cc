// SPDX-License-Identifier: Apache-2.0
// Memory, copies, and handles of memory and events for other processes.
#include "tests/simulated_cuda/frameworks/cudart/runtime.h"

using namespace arraybridge::simulated_runtime;

RUNTIME cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return Call(driver::cuMemAlloc_v2, Out(pointer), bytes);
}
RUNTIME cudaError_t cudaFree(void* pointer) { return Call(driver::cuMemFree_v2, Address(pointer)); }
RUNTIME cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return Call(driver::cuMemGetInfo_v2, free, total); }
RUNTIME cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return Call(driver::cuMemHostAlloc, pointer, bytes, 0u);
}
RUNTIME cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return Call(driver::cuMemHostAlloc, pointer, bytes, flags);
}
RUNTIME cudaError_t cudaFreeHost(void* pointer) { return Call(driver::cuMemFreeHost, pointer); }
RUNTIME cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return Call(driver::cuMemHostRegister_v2, pointer, bytes, flags);
}
RUNTIME cudaError_t cudaHostUnregister(void* pointer) { return Call(driver::cuMemHostUnregister, pointer); }
RUNTIME cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  return Call(driver::cuMemHostGetDevicePointer_v2, Out(device), host, flags);
}
RUNTIME cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Call(driver::cuMemcpyAsync, Address(to), Address(from), bytes, Stream(stream));
}
RUNTIME cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return Call(driver::cuMemcpy, Address(to), Address(from), bytes);
}
RUNTIME cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Call(driver::cuMemsetD8Async, Address(to), static_cast<unsigned char>(value), bytes, Stream(stream));
}
RUNTIME cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return Call(driver::cuMemsetD8_v2, Address(to), static_cast<unsigned char>(value), bytes);
}
RUNTIME cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2;
  const cudaError_t ready = Answer(Ready());
  if (ready != cudaSuccess) return ready;
  unsigned int type = 0;
  const auto address = Address(pointer);
  if (driver::cuPointerGetAttribute(&type, driver::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != driver::CUDA_SUCCESS) {
    return cudaSuccess;
  }
  driver::cuPointerGetAttribute(&attributes->device, driver::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  attributes->type = type == driver::CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (type != driver::CU_MEMORYTYPE_HOST) return cudaSuccess;
  // Registered memory has an address for the host and another one for devices, or none for devices.
  attributes->devicePointer = nullptr;
  driver::cuPointerGetAttribute(&attributes->devicePointer, driver::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
  driver::cuPointerGetAttribute(&attributes->hostPointer, driver::CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
  return cudaSuccess;
}

// Copies of rows, each by itself.
namespace {

template <class Copy>
cudaError_t CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t rows, const Copy& copy) {
  cudaError_t result = cudaSuccess;
  for (size_t row = 0; row < rows && result == cudaSuccess; ++row) {
    result = copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch);
  }
  return result;
}

}  // namespace

RUNTIME cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                      size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return CopyRows(to, to_pitch, from, from_pitch, height,
                  [&](void* row_to, const void* row) { return cudaMemcpyAsync(row_to, row, width, kind, stream); });
}
RUNTIME cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                 size_t height, cudaMemcpyKind kind) {
  return CopyRows(to, to_pitch, from, from_pitch, height,
                  [&](void* row_to, const void* row) { return cudaMemcpy(row_to, row, width, kind); });
}
RUNTIME cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                        cudaStream_t stream) {
  driver::CUcontext writer = nullptr;
  driver::CUcontext reader = nullptr;
  CUresult found = Primary(to_device, &writer);
  if (found == driver::CUDA_SUCCESS) found = Primary(from_device, &reader);
  if (found != driver::CUDA_SUCCESS) return Answer(found);
  return Call(driver::cuMemcpyPeerAsync, Address(to), writer, Address(from), reader, bytes, Stream(stream));
}
RUNTIME cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  const cudaError_t queued = cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
  return queued == cudaSuccess ? Call(driver::cuStreamSynchronize, driver::CUstream{}) : queued;
}

// Handles for other processes.
RUNTIME cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  driver::CUdeviceptr base = 0;
  const cudaError_t error =
      Call(driver::cuMemGetAddressRange_v2, &base, static_cast<size_t*>(nullptr), Address(pointer));
  if (error != cudaSuccess) return error;
  return Call(driver::cuIpcGetMemHandle, reinterpret_cast<driver::CUipcMemHandle*>(handle), base);
}
RUNTIME cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  return Call(driver::cuIpcOpenMemHandle_v2, Out(pointer), Bytes<driver::CUipcMemHandle>(handle), flags);
}
RUNTIME cudaError_t cudaIpcCloseMemHandle(void* pointer) { return Call(driver::cuIpcCloseMemHandle, Address(pointer)); }
RUNTIME cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return Call(driver::cuIpcGetEventHandle, reinterpret_cast<driver::CUipcEventHandle*>(handle), Event(event));
}
RUNTIME cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return Call(driver::cuIpcOpenEventHandle, Out(event), Bytes<driver::CUipcEventHandle>(handle));
}
