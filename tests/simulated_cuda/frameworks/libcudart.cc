// SPDX-License-Identifier: Apache-2.0
// A small CUDA runtime over the simulated driver. It is preloaded before the real libcudart, which asks the driver for
// an undocumented private table. It is compiled against the headers of the framework's runtime (libcudart.py). It has
// the calls with which frameworks copy, share and order; a kernel launch fails loudly.
#include <array>
#include <cstdio>
#include <cstring>

#include <cuda_runtime_api.h>

#include "tests/simulated_cuda/calls.h"

#define RUNTIME extern "C" __attribute__((visibility("default")))

namespace {

namespace driver = arraybridge::simulated;
using driver::CUresult;

constexpr int kDevicesMax = 16;
constexpr int kVersion = 13000;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::array<driver::CUcontext, kDevicesMax> contexts{};

// Results and errors have the same numbers, with few exceptions.
cudaError_t Answer(CUresult result) {
  const auto error = static_cast<cudaError_t>(result);
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

CUresult Initialised() {
  static const CUresult result = driver::cuInit(0);
  return result;
}

// Makes the current device's primary context current, as every runtime call does.
CUresult Ready() {
  const CUresult initialised = Initialised();
  if (initialised != driver::CUDA_SUCCESS) return initialised;
  driver::CUcontext& context = contexts[static_cast<size_t>(current_device)];
  if (context == nullptr) {
    const CUresult result = driver::cuDevicePrimaryCtxRetain(&context, current_device);
    if (result != driver::CUDA_SUCCESS) return result;
  }
  return driver::cuCtxSetCurrent(context);
}

// The result of a driver call that is made with a current context.
template <class Function, class... Arguments>
cudaError_t Call(Function function, Arguments... arguments) {
  const CUresult ready = Ready();
  return Answer(ready == driver::CUDA_SUCCESS ? function(arguments...) : ready);
}

driver::CUdeviceptr Address(const void* pointer) { return reinterpret_cast<driver::CUdeviceptr>(pointer); }
driver::CUstream Stream(cudaStream_t stream) { return reinterpret_cast<driver::CUstream>(stream); }
driver::CUevent Event(cudaEvent_t event) { return reinterpret_cast<driver::CUevent>(event); }
driver::CUstream* Out(cudaStream_t* stream) { return reinterpret_cast<driver::CUstream*>(stream); }
driver::CUevent* Out(cudaEvent_t* event) { return reinterpret_cast<driver::CUevent*>(event); }
driver::CUdeviceptr* Out(void** pointer) { return reinterpret_cast<driver::CUdeviceptr*>(pointer); }

template <class To, class From>
To Bytes(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace

// Devices, errors, versions.
RUNTIME cudaError_t cudaGetDeviceCount(int* count) {
  const CUresult initialised = Initialised();
  return Answer(initialised == driver::CUDA_SUCCESS ? driver::cuDeviceGetCount(count) : initialised);
}
RUNTIME cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaSetDevice(int device) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) return counted;
  if (device < 0 || device >= count || device >= kDevicesMax) return Answer(driver::CUDA_ERROR_INVALID_DEVICE);
  current_device = device;
  return Answer(Ready());
}
RUNTIME cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
RUNTIME cudaError_t cudaPeekAtLastError() { return last_error; }
RUNTIME const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  driver::cuGetErrorName(static_cast<CUresult>(error), &name);
  return name == nullptr ? "an error that the simulated runtime does not name" : name;
}
RUNTIME const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
RUNTIME cudaError_t cudaDriverGetVersion(int* version) { return Answer(driver::cuDriverGetVersion(version)); }
RUNTIME cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return Call(driver::cuDeviceGetAttribute, value, static_cast<driver::CUdevice_attribute>(attribute), device);
}
RUNTIME cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return Call(driver::cuDeviceCanAccessPeer, can, device, peer);
}
RUNTIME cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return Call(driver::cuDeviceGetPCIBusId, text, size, device);
}
RUNTIME cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  size_t bytes = 0;
  const cudaError_t error = Call(driver::cuDeviceTotalMem_v2, &bytes, device);
  if (error != cudaSuccess) return error;
  driver::cuDeviceGetName(properties->name, sizeof(properties->name), device);
  driver::CUuuid uuid{};
  driver::cuDeviceGetUuid_v2(&uuid, device);
  std::memcpy(&properties->uuid, &uuid, sizeof(uuid));
  properties->totalGlobalMem = bytes;
  properties->major = 9;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->multiProcessorCount = 132;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->sharedMemPerBlock = 49152;
  properties->regsPerBlock = 65536;
  properties->unifiedAddressing = 1;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Call(driver::cuCtxGetStreamPriorityRange, least, greatest);
}
RUNTIME cudaError_t cudaDeviceSynchronize() { return Call(driver::cuCtxSynchronize); }

// Memory.
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
  if (type == driver::CU_MEMORYTYPE_HOST) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

// Streams and events.
RUNTIME cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return Call(driver::cuStreamCreate, Out(stream), flags);
}
RUNTIME cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
RUNTIME cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
RUNTIME cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Call(driver::cuStreamDestroy_v2, Stream(stream)); }
RUNTIME cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Call(driver::cuStreamSynchronize, Stream(stream));
}
RUNTIME cudaError_t cudaStreamQuery(cudaStream_t stream) { return Call(driver::cuStreamQuery, Stream(stream)); }
RUNTIME cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return Call(driver::cuStreamWaitEvent, Stream(stream), Event(event), flags);
}
RUNTIME cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                             cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                             size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Call(driver::cuThreadExchangeStreamCaptureMode, reinterpret_cast<driver::CUstreamCaptureMode*>(mode));
}
RUNTIME cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return Call(driver::cuEventCreate, Out(event), flags);
}
RUNTIME cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
RUNTIME cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call(driver::cuEventRecord, Event(event), Stream(stream));
}
RUNTIME cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}
RUNTIME cudaError_t cudaEventQuery(cudaEvent_t event) { return Call(driver::cuEventQuery, Event(event)); }
RUNTIME cudaError_t cudaEventSynchronize(cudaEvent_t event) { return Call(driver::cuEventSynchronize, Event(event)); }
RUNTIME cudaError_t cudaEventDestroy(cudaEvent_t event) { return Call(driver::cuEventDestroy_v2, Event(event)); }

// Other processes.
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

// Looks up the driver's calls by name.
RUNTIME cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned int version,
                                                     unsigned long long flags, cudaDriverEntryPointQueryResult* why) {
  driver::CUdriverProcAddressQueryResult result{};
  const CUresult answer = driver::cuGetProcAddress_v2(name, found, static_cast<int>(version), flags, &result);
  if (why != nullptr) *why = static_cast<cudaDriverEntryPointQueryResult>(result);
  return Answer(answer);
}

// Kernels. Registering one succeeds. A launch begins with this call, which must leave an error behind; otherwise the
// caller would continue with bytes that no kernel has written.
RUNTIME unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) {
  last_error = cudaErrorNotSupported;
  return cudaErrorNotSupported;
}
RUNTIME void** __cudaRegisterFatBinary(void*) {
  static void* binary = nullptr;
  return &binary;
}
#define IGNORED(name)  \
  RUNTIME void name(); \
  RUNTIME void name() {}
IGNORED(__cudaRegisterFatBinaryEnd)
IGNORED(__cudaUnregisterFatBinary)
IGNORED(__cudaRegisterFunction)
IGNORED(__cudaRegisterVar)
IGNORED(__cudaRegisterManagedVar)
IGNORED(__cudaRegisterHostVar)
IGNORED(__cudaInitModule)
