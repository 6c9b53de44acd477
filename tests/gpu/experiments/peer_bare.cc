// SPDX-License-Identifier: Apache-2.0
// Calls in a thread that has no current context.
#include <sys/mman.h>

#include <thread>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

// Makes calls, and keeps the name and the result of each.
class Tries {
 public:
  explicit Tries(State& state) : state_(state) {}

  template <class Function, class... Arguments>
  bool Make(const char* symbol, Function* function, Arguments... arguments) {
    const CUresult result = state_.Call(symbol, function, arguments...);
    said_ += Concat(said_.empty() ? "" : ", ", symbol, " ", static_cast<uint32_t>(result));
    return result == cuda::CUDA_SUCCESS;
  }
  State& state() const { return state_; }
  const std::string& said() const { return said_; }

 private:
  State& state_;
  std::string said_;
};

// Maps the block, asks about its address, and unmaps it.
void MapAndAsk(Tries& tries, cuda::CUmemGenericAllocationHandle handle, uint64_t bytes) {
  const cuda::Driver& driver = tries.state().driver;
  const cuda::CUmemAccessDesc access{{cuda::CU_MEM_LOCATION_TYPE_DEVICE, 0}, cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const size_t no_alignment = 0;
  const auto no_hint = cuda::CUdeviceptr{0};
  cuda::CUdeviceptr address = 0;
  if (!tries.Make("cuMemAddressReserve", driver.MemAddressReserve, &address, bytes, no_alignment, no_hint, 0)) return;
  if (tries.Make("cuMemMap", driver.MemMap, address, bytes, 0, handle, 0)) {
    tries.Make("cuMemSetAccess", driver.MemSetAccess, address, bytes, &access, 1);
    int ordinal = -1;
    void* value = &ordinal;
    auto attribute = cuda::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    tries.Make("cuPointerGetAttribute", driver.PointerGetAttribute, value, attribute, address);
    tries.Make("cuPointerGetAttributes", driver.PointerGetAttributes, 1u, &attribute, &value, address);
    cuda::CUdeviceptr base = 0;
    size_t size = 0;
    tries.Make("cuMemGetAddressRange", driver.MemGetAddressRange, &base, &size, address);
    cuda::CUmemGenericAllocationHandle again = 0;
    if (tries.Make("cuMemRetainAllocationHandle", driver.MemRetainAllocationHandle, &again,
                   reinterpret_cast<void*>(address))) {
      driver.MemRelease(again);
    }
    tries.Make("cuMemUnmap", driver.MemUnmap, address, bytes);
  }
  tries.Make("cuMemAddressFree", driver.MemAddressFree, address, bytes);
}

void VmmCalls(Tries& tries, uint64_t bytes) {
  const cuda::Driver& driver = tries.state().driver;
  auto properties = BlockProperties();
  size_t granularity = 0;
  tries.Make("cuMemGetAllocationGranularity", driver.MemGetAllocationGranularity, &granularity, &properties,
             cuda::CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  cuda::CUmemGenericAllocationHandle own = 0;
  if (tries.Make("cuMemCreate", driver.MemCreate, &own, bytes, &properties, 0)) {
    int descriptor = -1;
    tries.Make("cuMemExportToShareableHandle", driver.MemExportToShareableHandle, &descriptor, own, kDescriptor, 0);
    const UniqueFd exported(descriptor);
    MapAndAsk(tries, own, bytes);
    tries.Make("cuMemRelease", driver.MemRelease, own);
  }
  cuda::CUmemGenericAllocationHandle theirs = 0;
  auto* const shareable = reinterpret_cast<void*>(uintptr_t(tries.state().received.get()));
  if (!tries.Make("cuMemImportFromShareableHandle", driver.MemImportFromShareableHandle, &theirs, shareable,
                  kDescriptor)) {
    return;
  }
  tries.Make("cuMemGetAllocationPropertiesFromHandle", driver.MemGetAllocationPropertiesFromHandle, &properties,
             theirs);
  MapAndAsk(tries, theirs, bytes);
  tries.Make("cuMemRelease", driver.MemRelease, theirs);
}

void LegacyCalls(Tries& tries, uint64_t bytes, const std::string& hexadecimal) {
  const cuda::Driver& driver = tries.state().driver;
  cuda::CUdeviceptr address = 0;
  if (tries.Make("cuMemAlloc", driver.MemAlloc, &address, bytes)) {
    cuda::CUipcMemHandle own{};
    tries.Make("cuIpcGetMemHandle", driver.IpcGetMemHandle, &own, address);
    tries.Make("cuMemFree", driver.MemFree, address);
  }
  cuda::CUipcMemHandle handle{};
  FromHexadecimal(hexadecimal, &handle, sizeof handle);
  if (tries.Make("cuIpcOpenMemHandle", driver.IpcOpenMemHandle, &address, handle, cuda::kIpcMemLazyEnablePeerAccess)) {
    tries.Make("cuIpcCloseMemHandle", driver.IpcCloseMemHandle, address);
  }
}

void EventCalls(Tries& tries, const std::string& hexadecimal) {
  const cuda::Driver& driver = tries.state().driver;
  cuda::CUevent own = nullptr;
  if (tries.Make("cuEventCreate", driver.EventCreate, &own, cuda::kEventInterprocess | cuda::kEventDisableTiming)) {
    cuda::CUipcEventHandle handle{};
    tries.Make("cuIpcGetEventHandle", driver.IpcGetEventHandle, &handle, own);
    tries.Make("cuEventDestroy", driver.EventDestroy, own);
  }
  cuda::CUipcEventHandle handle{};
  FromHexadecimal(hexadecimal, &handle, sizeof handle);
  cuda::CUevent opened = nullptr;
  if (tries.Make("cuIpcOpenEventHandle", driver.IpcOpenEventHandle, &opened, handle)) {
    tries.Make("cuEventQuery", driver.EventQuery, opened);
    tries.Make("cuEventDestroy", driver.EventDestroy, opened);
  }
}

void OtherCalls(Tries& tries, uint64_t bytes) {
  const cuda::Driver& driver = tries.state().driver;
  size_t free = 0;
  size_t total = 0;
  auto mode = cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
  tries.Make("cuMemGetInfo", driver.MemGetInfo, &free, &total);
  tries.Make("cuThreadExchangeStreamCaptureMode", driver.ThreadExchangeStreamCaptureMode, &mode);
  tries.Make("cuStreamSynchronize", driver.StreamSynchronize, reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy));
  tries.Make("cuCtxSynchronize", driver.CtxSynchronize);
  void* const host = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (tries.Make("cuMemHostRegister", driver.MemHostRegister, host, bytes, 0u)) driver.MemHostUnregister(host);
  ::munmap(host, bytes);
}

// bare BYTES HANDLE EVENT: with a descriptor; all three are of another process. The value: each call and its result.
Reply Bare(State& state, const Words& words) {
  Tries tries(state);
  std::thread([&] {
    VmmCalls(tries, words.Number(0));
    LegacyCalls(tries, words.Number(0), words[1]);
    EventCalls(tries, words[2]);
    OtherCalls(tries, words.Number(0));
  }).join();
  return {cuda::CUDA_SUCCESS, tries.said()};
}

}  // namespace

void AddBareVerbs(Verbs& verbs) { verbs.insert({{"bare", Bare}}); }

}  // namespace arraybridge::experiments
