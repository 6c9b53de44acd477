// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/device.h"

#include <algorithm>
#include <cstdio>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {
namespace {

// Attributes that frameworks query in addition to Attribute's: plausible values without effect.
int GuestAttribute(uint32_t attribute) {
  switch (attribute) {
    case 1:  // threads per block
    case 2:
    case 3:
      return 1024;
    case 4:
      return 64;
    case 5:
      return 2147483647;
    case 6:
    case 7:
    case 12:
      return 65535;
    case 8:  // shared memory per block
      return 49152;
    case 10:  // warp
      return 32;
    case 16:  // multiprocessors
      return 132;
    case 39:
      return 2048;
    default:
      return 0;
  }
}

// The attributes that this project reads; -1 for others.
int Attribute(const Process& process, CUdevice_attribute attribute, int ordinal) {
  if (process.Off(attribute)) return 0;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      return process.config.one_memory.contains(process.devices.Physical(ordinal)) ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return process.config.exclusive ? 3 : 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return process.devices.Physical(ordinal) + 1;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      return process.config.integrated.contains(process.devices.Physical(ordinal)) ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return 0;
  }
  return -1;
}

}  // namespace

DeviceTable::DeviceTable(const Config& config) : config_(config) {
  for (const int physical : config.visible) {
    Context& context = contexts.emplace_back();
    context.ordinal = count() - 1;
    context.physical = physical;
  }
}

int DeviceTable::OrdinalOf(int physical) const {
  for (const Context& context : contexts) {
    if (context.physical == physical) return context.ordinal;
  }
  return -1;
}

Context* DeviceTable::Known(CUcontext context) {
  for (Context& each : contexts) {
    if (ToApi(&each) == context) return &each;
  }
  return nullptr;
}

CUuuid DeviceTable::Uuid(int ordinal) const { return config_.Uuid(Physical(ordinal)); }

SIM_API cuDeviceGet(CUdevice* device, int ordinal) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetCount(int* count) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = call.process.devices.count();
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetName(char* name, int size, CUdevice device) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (name == nullptr || size < 1) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int physical = call.process.devices.Physical(device);
  const char* const instance = call.process.config.mig.contains(physical) ? " MIG 1g.10gb" : "";
  std::snprintf(name, static_cast<size_t>(size), "Simulated GPU %d%s", physical, instance);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = call.process.devices.Uuid(device);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = call.process.config.memory;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int known = Attribute(call.process, attribute, device);
  if (known < 0 && !call.process.config.guest) return CUDA_ERROR_INVALID_VALUE;
  *value = known < 0 ? GuestAttribute(attribute) : known;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device) || !call.process.devices.Has(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = call.process.config.peers && device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
