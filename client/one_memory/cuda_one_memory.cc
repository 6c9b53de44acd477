// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/one_memory/one_memory.h>

#include <arraybridge/device.h>

#include <chrono>
#include <utility>

#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/layout.h"
#include "client/one_memory/mapped_array.h"
#include "proto/boundary/one_memory/driver_reach.h"

namespace arraybridge {
namespace {

// The address for the host of memory that the host and a GPU use; null: it is memory of the GPU.
Result<void*> HostPointerOf(const void* data, const Device& gpu) {
  AB_ASSIGN_OR_RETURN(const auto place, CudaDevices::At(gpu));
  const auto address = reinterpret_cast<cuda::CUdeviceptr>(data);
  uint32_t type = 0;
  void* host = nullptr;
  const cuda::CUresult typed = place.driver.PointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (typed != cuda::CUDA_SUCCESS || type != cuda::CU_MEMORYTYPE_HOST) return nullptr;
  AB_RETURN_IF_ERROR(
      place.driver.Check(place.driver.PointerGetAttribute(&host, cuda::CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
                         "cuPointerGetAttribute"));
  return host;
}

}  // namespace

Result<HostReach> HostReachOf(int32_t ordinal) {
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto gpu, devices->Find({kDeviceCuda, ordinal, {}}));
  cuda::CUdevice number = 0;
  AB_RETURN_IF_ERROR(devices->driver().Check(devices->driver().DeviceGet(&number, gpu.id), "cuDeviceGet"));
  return cuda::ReachOf(devices->driver(), number);
}

// View::copy_on_write is set for the views of a Lease in host memory, and the Lease is their owner.
bool IsShownByGpus(const View& share) {
  return share.device.type == kDeviceCpu && (share.elements() == 0 || share.copy_on_write != nullptr);
}

Result<View> GpuViewOf(const View& share, int32_t ordinal) {
  if (!IsShownByGpus(share)) {
    return Unimplemented("the array is not of a share in host memory that was acquired for reading")
        .Because("NOT_HOST_MEMORY");
  }
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  View shown = share;
  AB_ASSIGN_OR_RETURN(shown.device, devices->Find({kDeviceCuda, ordinal, {}}));
  shown.copy_on_write = nullptr;
  shown.read_only = true;
  if (share.elements() == 0) return shown;
  auto lease = std::static_pointer_cast<const Lease>(share.owner);
  auto registered = HostRegistration::Of(*devices, shown.device.id, *lease->arena);
  if (!registered.ok() && registered.status().code() == Code::kResourceExhausted) {
    // Arenas that no array uses may be registered.
    lease->releases->Post(lease->releases->TakeUnused(std::chrono::steady_clock::now()));
    registered = HostRegistration::Of(*devices, shown.device.id, *lease->arena);
  }
  AB_ASSIGN_OR_RETURN(auto registration, std::move(registered));
  const auto* const arena = lease->arena->shared->data();
  shown.data = registration->data() + (static_cast<const std::byte*>(share.data) - arena);
  Reclaimer& reclaimer = lease->reclaimer();
  AB_ASSIGN_OR_RETURN(shown.owner,
                      reclaimer.Adopt(std::make_unique<MappedArray>(std::move(lease), std::move(registration))));
  return shown;
}

Result<std::optional<View>> HostViewOf(const View& array) {
  if (array.device.type != kDeviceCuda || array.elements() == 0) return std::optional<View>();
  AB_ASSIGN_OR_RETURN(const auto extent, layout::ExtentOf(array.shape, array.strides));
  const int64_t item = int64_t{array.type.bits} * array.type.lanes / 8;
  const int64_t before = -extent.lowest * item;  // bytes of the array before its first element
  const auto bytes = static_cast<uint64_t>((extent.highest - extent.lowest + 1) * item);
  auto* const lowest = static_cast<std::byte*>(array.data) - before;
  void* host = nullptr;
  if (std::byte* const own = HostRegistration::HostAddressOf(array.device.id, lowest, bytes)) {
    host = own + before;
  } else {
    AB_ASSIGN_OR_RETURN(host, HostPointerOf(array.data, array.device));
  }
  if (host == nullptr) return std::optional<View>();
  AB_RETURN_IF_ERROR(WaitForProducer(array));
  View shown = array;
  shown.data = host;
  shown.device = {};
  shown.stream.reset();
  shown.stream_is_producers = false;
  shown.fence.reset();
  return std::optional(std::move(shown));
}

bool LiesOnHost(const void* address, int32_t ordinal) {
  if (HostRegistration::HostAddressOf(ordinal, address, 1) != nullptr) return true;
  const auto host = HostPointerOf(address, {kDeviceCuda, ordinal, {}});
  return host.ok() && *host != nullptr;
}

uint64_t RegistrationsLiving() { return HostRegistration::Living(); }

}  // namespace arraybridge
