// SPDX-License-Identifier: Apache-2.0
// Queries of addresses: attributes and ranges.
#include <cstring>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {
namespace {

template <class T>
bool Put(void* value, T what) {
  std::memcpy(value, &what, sizeof(what));
  return true;
}

// Reads an attribute of device memory; false for unknown attributes.
bool OfDevice(Process& process, const Context* current, const Range& range, uint64_t address,
              CUpointer_attribute attribute, void* value) {
  const bool vmm = range.kind == RangeKind::kVmm;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put(value, vmm ? 0 : reinterpret_cast<uint64_t>(current));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put(value, uint32_t{CU_MEMORYTYPE_DEVICE});
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Put(value, address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Put(value, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Put(value, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put(value, process.devices.OrdinalOf(range.block->device()));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Put(value, range.kind == RangeKind::kAlloc ? 1 : 0);
    // For mapped memory these describe the reservation.
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Put(value, vmm ? range.reservation_base : range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Put(value, vmm ? range.reservation_size : range.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put(value, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Put(value, uint64_t{range.block->header().handle_types});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Put(value, range.access);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Put(value, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Put(value, range.size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Put(value, range.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put(value, range.block->header().id);
  }
  return false;
}

// Reads an attribute of pinned host memory.
bool OfPinned(const Context* current, const HostPlace& place, CUpointer_attribute attribute, void* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put(value, reinterpret_cast<uint64_t>(current));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put(value, uint32_t{CU_MEMORYTYPE_HOST});
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return place.device() != 0 && Put(value, place.device());
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return Put(value, place.host);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put(value, place.range->ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Put(value, place.of_device ? place.range->device : place.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Put(value, place.range->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put(value, place.range->device == 0 ? 0 : 1);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Put(value, 0);
    default:
      return false;
  }
}

bool Attribute(Process& process, const Context* current, uint64_t address, CUpointer_attribute attribute, void* value) {
  if (const Range* range = process.space.Find(address)) {
    return OfDevice(process, current, *range, address, attribute, value);
  }
  const auto place = process.host.Find(address);
  return place.has_value() && OfPinned(current, *place, attribute, value);
}

size_t SizeOf(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return sizeof(int);
    default:
      return sizeof(uint64_t);
  }
}

}  // namespace

SIM_API cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  const Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool known = Attribute(call.process, call.context(), address, attribute, value);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// For an unknown address all attributes are zero, and the call succeeds.
SIM_API cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** values,
                               CUdeviceptr address) {
  const Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (attributes == nullptr || values == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (Attribute(call.process, call.context(), address, attributes[i], values[i])) continue;
    std::memset(values[i], 0, SizeOf(attributes[i]));
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) Put(values[i], -2);
  }
  return CUDA_SUCCESS;
}

SIM_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  const Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const Range* range = call.process.space.Find(address);
  const auto place = call.process.host.Find(address);
  if (range == nullptr && place.has_value() && place->device() == address) {
    if (base != nullptr) *base = place->range->device;
    if (bytes != nullptr) *bytes = place->range->size;
    return CUDA_SUCCESS;
  }
  if (range == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range->base;
  if (bytes != nullptr) *bytes = range->size;
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
