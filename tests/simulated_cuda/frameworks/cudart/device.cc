// SPDX-License-Identifier: Apache-2.0
// Devices, errors, versions, and the calls of the driver by name.
#include <array>
#include <mutex>
#include <utility>

#include "tests/simulated_cuda/frameworks/cudart/runtime.h"
#include "tests/simulated_cuda/frameworks/cudart/unsupported.h"

namespace arraybridge::simulated_runtime {

constexpr int kDevicesMax = 16;

cudaError_t& LastError() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

namespace {

// The device that cudaSetDevice chose last on this thread.
int& ChosenDevice() {
  static thread_local int device = 0;
  return device;
}

}  // namespace

int CurrentDevice() {
  driver::CUdevice device = 0;
  return driver::cuCtxGetDevice(&device) == driver::CUDA_SUCCESS ? device : ChosenDevice();
}

cudaError_t Answer(CUresult result) {
  const auto error = static_cast<cudaError_t>(result);
  if (error != cudaSuccess && error != cudaErrorNotReady) LastError() = error;
  return error;
}

int Refused() { return Answer(driver::CUDA_ERROR_NOT_SUPPORTED); }

CUresult Initialised() {
  static const CUresult result = driver::cuInit(0);
  return result;
}

CUresult Primary(int device, driver::CUcontext* found) {
  const CUresult initialised = Initialised();
  if (initialised != driver::CUDA_SUCCESS) return initialised;
  if (device < 0 || device >= kDevicesMax) return driver::CUDA_ERROR_INVALID_DEVICE;
  static std::array<driver::CUcontext, kDevicesMax> contexts{};
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  driver::CUcontext& context = contexts[static_cast<size_t>(device)];
  if (context == nullptr) {
    const CUresult result = driver::cuDevicePrimaryCtxRetain(&context, device);
    if (result != driver::CUDA_SUCCESS) return result;
  }
  *found = context;
  return driver::CUDA_SUCCESS;
}

namespace {

CUresult MakeCurrent(int device) {
  driver::CUcontext context = nullptr;
  const CUresult found = Primary(device, &context);
  return found == driver::CUDA_SUCCESS ? driver::cuCtxSetCurrent(context) : found;
}

}  // namespace

CUresult Ready() { return MakeCurrent(CurrentDevice()); }

}  // namespace arraybridge::simulated_runtime

using namespace arraybridge::simulated_runtime;

RUNTIME cudaError_t cudaGetDeviceCount(int* count) {
  const CUresult initialised = Initialised();
  return Answer(initialised == driver::CUDA_SUCCESS ? driver::cuDeviceGetCount(count) : initialised);
}
RUNTIME cudaError_t cudaGetDevice(int* device) {
  *device = CurrentDevice();
  return cudaSuccess;
}
RUNTIME cudaError_t cudaSetDevice(int device) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) return counted;
  if (device < 0 || device >= count || device >= kDevicesMax) return Answer(driver::CUDA_ERROR_INVALID_DEVICE);
  ChosenDevice() = device;
  return Answer(MakeCurrent(device));
}
RUNTIME cudaError_t cudaGetLastError() { return std::exchange(LastError(), cudaSuccess); }
RUNTIME cudaError_t cudaPeekAtLastError() { return LastError(); }
RUNTIME const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  driver::cuGetErrorName(static_cast<CUresult>(error), &name);
  return name == nullptr ? "an error that the simulated runtime does not name" : name;
}
RUNTIME const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
RUNTIME cudaError_t cudaDriverGetVersion(int* version) { return Answer(driver::cuDriverGetVersion(version)); }
RUNTIME cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
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
RUNTIME cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) return counted;
  for (int each = 0; each < count; ++each) {
    char known[16] = "";
    driver::cuDeviceGetPCIBusId(known, sizeof(known), each);
    if (std::strcmp(known, text) != 0) continue;
    *device = each;
    return cudaSuccess;
  }
  return Answer(driver::CUDA_ERROR_INVALID_DEVICE);
}
RUNTIME cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
  int can = 0;
  const cudaError_t asked = cudaDeviceCanAccessPeer(&can, CurrentDevice(), peer);
  if (asked != cudaSuccess || can != 0) return asked;
  return Answer(driver::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}
RUNTIME cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return Call(driver::cuCtxGetLimit, value, static_cast<unsigned int>(limit));
}
RUNTIME cudaError_t cudaProfilerStart() { return Answer(Ready()); }
RUNTIME cudaError_t cudaProfilerStop() { return Answer(Ready()); }
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

// Looks up the driver's calls by name.
RUNTIME cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned int version,
                                                     unsigned long long flags, cudaDriverEntryPointQueryResult* why) {
  driver::CUdriverProcAddressQueryResult result{};
  const CUresult answer = driver::cuGetProcAddress_v2(name, found, static_cast<int>(version), flags, &result);
  if (why != nullptr) *why = static_cast<cudaDriverEntryPointQueryResult>(result);
  return Answer(answer);
}
RUNTIME cudaError_t cudaGetDriverEntryPoint(const char* name, void** found, unsigned long long flags,
                                            cudaDriverEntryPointQueryResult* why) {
  return cudaGetDriverEntryPointByVersion(name, found, CUDART_VERSION, flags, why);
}
