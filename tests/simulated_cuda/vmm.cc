// SPDX-License-Identifier: Apache-2.0
// Physical memory and address space as separate objects: cuMemCreate, descriptors, reservations, mappings.
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

constexpr uint64_t kFirstHandle = 0xA0000;  // not a small number, so that a size or an index is not a valid handle

// The error of allocation properties, or success.
CUresult Refusal(const Process& process, const CUmemAllocationProp* properties) {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUmemAllocationProp zero{};
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->win32HandleMetaData != nullptr ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      std::memcmp(&properties->allocFlags, &zero.allocFlags, sizeof(zero.allocFlags)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!process.devices.Has(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const uint32_t types = properties->requestedHandleTypes;
  if (types == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if ((types & ~uint32_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool no_descriptors = process.Off(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  if (process.Off(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) || (types != 0 && no_descriptors)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle AddHandle(Process& process, std::shared_ptr<MemoryBlock> block) {
  const CUmemGenericAllocationHandle handle = kFirstHandle + process.NextId();
  process.handles[handle] = std::move(block);
  return handle;
}

// The reservation that contains [address, address + bytes), or null.
const std::pair<const uint64_t, uint64_t>* ReservationOf(const AddressSpace& space, uint64_t address, uint64_t bytes) {
  const auto after = space.reservations.upper_bound(address);
  if (after == space.reservations.begin()) return nullptr;
  const auto& reservation = *std::prev(after);
  const uint64_t offset = address - reservation.first;
  const bool inside = offset < reservation.second && bytes <= reservation.second - offset;
  return inside ? &reservation : nullptr;
}

uint64_t Reserved(const AddressSpace& space) {
  uint64_t sum = 0;
  for (const auto& [base, size] : space.reservations) sum += size;
  return sum;
}

}  // namespace

SIM_API cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                      CUmemAllocationGranularity_flags option) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  const CUresult refusal = Refusal(call.process, properties);
  if (refusal != CUDA_SUCCESS) return refusal;
  if (bytes == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

SIM_API cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                    unsigned long long flags) {
  Call call(__func__, Needs::kContextForMemory);
  if (call.refused()) return call.refused();
  const CUresult refusal = Refusal(call.process, properties);
  if (refusal != CUDA_SUCCESS) return refusal;
  if (handle == nullptr || flags != 0 || bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const int physical = call.process.devices.Physical(properties->location.id);
  uint64_t& used = call.process.devices.used[physical];
  if (used > call.process.config.memory || bytes > call.process.config.memory - used) return CUDA_ERROR_OUT_OF_MEMORY;
  auto block = MemoryBlock::Create(bytes, physical, BlockKind::kVmm, properties->requestedHandleTypes, &used);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = AddHandle(call.process, std::move(block));
  return CUDA_SUCCESS;
}

SIM_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (call.process.handles.erase(handle) == 0) Violation(__func__, "unknown or already released", handle);
  return CUDA_SUCCESS;
}

SIM_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  const Range* range = call.process.space.Find(reinterpret_cast<uint64_t>(address));
  if (handle == nullptr || range == nullptr || range->kind != RangeKind::kVmm) return CUDA_ERROR_INVALID_VALUE;
  *handle = AddHandle(call.process, range->block);
  return CUDA_SUCCESS;
}

SIM_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  const auto found = call.process.handles.find(handle);
  if (properties == nullptr || found == call.process.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(found->second->header().handle_types);
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, call.process.devices.OrdinalOf(found->second->device())};
  return CUDA_SUCCESS;
}

SIM_API cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                     CUmemAllocationHandleType type, unsigned long long flags) {
  const Call call(__func__, Needs::kContextForMemory);
  if (call.refused()) return call.refused();
  const auto found = call.process.handles.find(handle);
  if (shareable == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      found == call.process.handles.end() || (found->second->header().handle_types & type) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Without close-on-exec, as from the real driver: a caller that needs it must set it.
  const int descriptor = fcntl(found->second->descriptor(), F_DUPFD, 0);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(shareable, &descriptor, sizeof(descriptor));
  return CUDA_SUCCESS;
}

SIM_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                       CUmemAllocationHandleType type) {
  Call call(__func__, Needs::kContextForMemory);
  if (call.refused()) return call.refused();
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (call.process.Off(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  auto block = MemoryBlock::Open(static_cast<int>(reinterpret_cast<uintptr_t>(shareable)));
  if (block == nullptr || block->header().kind != BlockKind::kVmm) return CUDA_ERROR_INVALID_VALUE;
  const bool own_is_fine = call.process.config.own || call.process.config.guest;
  if (block->header().owner == ProcessNonce() && !own_is_fine) return CUDA_ERROR_INVALID_VALUE;
  if (call.process.devices.OrdinalOf(block->device()) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *handle = AddHandle(call.process, std::move(block));
  return CUDA_SUCCESS;
}

SIM_API cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                            unsigned long long flags) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  AddressSpace& space = call.process.space;
  if (address == nullptr || bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
      (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t reserved = Reserved(space);
  if (bytes > call.process.config.address_space - reserved) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t base = space.Reserve(bytes, alignment);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  space.reservations[base] = bytes;
  *address = base;
  return CUDA_SUCCESS;
}

SIM_API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  AddressSpace& space = call.process.space;
  const auto found = space.reservations.find(address);
  if (found == space.reservations.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  if (space.Overlaps(address, bytes)) Violation(__func__, "still mapped", address);
  space.reservations.erase(found);
  space.Free(address, bytes);
  return CUDA_SUCCESS;
}

SIM_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  Process& process = call.process;
  const auto found = process.handles.find(handle);
  if (found == process.handles.end() || offset != 0 || flags != 0 || bytes != found->second->size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto* reservation = ReservationOf(process.space, address, bytes);
  if (reservation == nullptr || address % kGranularity != 0 || process.space.Overlaps(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  process.space.ranges[address] = Range{.base = address,
                                        .size = bytes,
                                        .kind = RangeKind::kVmm,
                                        .block = found->second,
                                        .access = CU_MEM_ACCESS_FLAGS_PROT_NONE,
                                        .id = process.NextId(),
                                        .reservation_base = reservation->first,
                                        .reservation_size = reservation->second};
  return CUDA_SUCCESS;
}

SIM_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions, size_t count) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  Process& process = call.process;
  if (descriptions == nullptr || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // The range must consist of whole, adjacent mappings.
  uint64_t end = address;
  for (auto it = process.space.ranges.find(address); it != process.space.ranges.end() && it->first == end; ++it) {
    if (it->second.kind != RangeKind::kVmm || end == address + bytes) break;
    end += it->second.size;
  }
  if (end != address + bytes) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& wanted = descriptions[i];
    const bool known = wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                       wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known || wanted.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!process.devices.Has(wanted.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const bool own = process.devices.Physical(wanted.location.id) == process.space.ranges[address].block->device();
    if (!own && !process.config.peers) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (auto it = process.space.ranges.find(address); it != process.space.ranges.end() && it->first < end; ++it) {
    for (size_t i = 0; i < count; ++i) {
      const int32_t ordinal = descriptions[i].location.id;
      const bool own = process.devices.Physical(ordinal) == it->second.block->device();
      (own ? it->second.access : it->second.access_of_others[ordinal]) = descriptions[i].flags;
    }
  }
  return CUDA_SUCCESS;
}

SIM_API cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  auto& ranges = call.process.space.ranges;
  const auto found = ranges.find(address);
  if (found == ranges.end() || found->second.kind != RangeKind::kVmm || found->second.size != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  call.process.RefuseQueuedWork(__func__, address, bytes);
  ranges.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
