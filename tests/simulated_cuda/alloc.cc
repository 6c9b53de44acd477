// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc and legacy handles: 64 bytes that identify an allocation in a running process.
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "tests/simulated_cuda/alloc.h"
#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

constexpr int kFreed = 0xDD;

uint32_t UnitOf(uint64_t offset) { return static_cast<uint32_t>(offset / kUnit % 4096); }

// The place of an allocation's nonce. A block that is not shared has one allocation, at unit 0.
std::atomic<uint64_t>& NonceOf(const Range& range) { return range.block->header().nonces[UnitOf(range.offset)]; }

// Places an allocation; a null block if there is no memory.
Range Place(Process& process, uint64_t size, int device) {
  Range range;
  range.size = size;
  range.kind = RangeKind::kAlloc;
  range.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  uint64_t& used = process.devices.used[device];
  if (size < kGranularity) {
    auto place = process.small.Allocate(process.space, size, device, &used, process.config.memory);
    range.block = std::move(place.block);
    range.base = place.base + place.offset;
    range.offset = place.offset;
    range.reservation_base = place.base;
    range.reservation_size = kGranularity;
    return range;
  }
  if (size > process.config.memory) return range;
  const uint64_t rounded = (size + kGranularity - 1) / kGranularity * kGranularity;
  if (used > process.config.memory || rounded > process.config.memory - used) return range;
  range.block = MemoryBlock::Create(rounded, device, BlockKind::kAlloc, 0, &used);
  range.base = range.block == nullptr ? 0 : process.space.Reserve(rounded);
  if (range.base == 0) range.block = nullptr;
  range.reservation_base = range.base;
  range.reservation_size = rounded;
  return range;
}

// The block that a handle refers to, if its owner still has it.
std::shared_ptr<MemoryBlock> BlockOf(const MemoryHandleBytes& bytes, CUresult* why) {
  const std::string path = "/proc/" + std::to_string(bytes.pid) + "/fd/" + std::to_string(bytes.descriptor);
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  *why = IsAlive(bytes.pid) ? CUDA_ERROR_INVALID_HANDLE
                            : CUDA_ERROR_INVALID_CONTEXT;  // the owner is dead or in another PID namespace
  if (!file.valid()) return nullptr;
  auto block = MemoryBlock::Open(file.get());
  if (block == nullptr || block->header().id != bytes.id || bytes.offset >= block->size()) return nullptr;
  return block->header().nonces[UnitOf(bytes.offset)] == bytes.nonce ? block : nullptr;
}

Range* FindImport(Process& process, uint64_t nonce) {
  for (auto& [base, range] : process.space.ranges) {
    if (range.kind == RangeKind::kLegacyImport && range.nonce == nonce) return &range;
  }
  return nullptr;
}

}  // namespace

void Destroy(Process& process, uint64_t base) {
  const Range range = std::move(process.space.ranges.at(base));
  process.space.ranges.erase(base);
  if (range.kind == RangeKind::kLegacyImport) {
    range.block->header().importers.Remove(getpid(), UnitOf(range.opened - range.base));
    process.space.Free(range.reservation_base, range.reservation_size);
    return;
  }
  NonceOf(range) = 0;
  std::memset(range.block->bytes() + range.offset, kFreed, range.size);
  if (range.size < kGranularity) {
    process.small.Free(process.space, range.reservation_base, range.offset, range.size);
  } else {
    process.space.Free(range.reservation_base, range.reservation_size);
  }
}

uint64_t Allocate(Process& process, uint64_t bytes, int physical) {
  Range range = Place(process, bytes, physical);
  if (range.block == nullptr) return 0;
  range.id = process.NextId();
  NonceOf(range) = Nonce();
  const uint64_t base = range.base;
  process.space.ranges[base] = std::move(range);
  return base;
}

SIM_API cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t made = Allocate(call.process, bytes, call.context()->physical);
  if (made == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = made;
  return CUDA_SUCCESS;
}

SIM_API cuMemFree_v2(CUdeviceptr address) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (address == 0) return CUDA_SUCCESS;
  Process& process = call.process;
  if (process.config.guest) {  // as on hardware, wait for the device
    for (const auto& stream : process.AllStreams()) stream->Run(call.lock, stream->tail(), process.changed);
  }
  const auto found = process.space.ranges.find(address);
  if (found == process.space.ranges.end() || found->second.kind != RangeKind::kAlloc) {
    // An address inside an allocation is refused; an address outside of all allocations was freed before.
    if (process.space.Find(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    Violation(__func__, "not the address of a live allocation", address);
  }
  const Range& range = found->second;
  process.RefuseQueuedWork(__func__, range.base, range.size);
  if (range.block->header().importers.Any(UnitOf(range.offset)) && !process.config.guest) {
    Violation(__func__, "another process still has this memory open", address);
  }
  Destroy(process, address);
  return CUDA_SUCCESS;
}

SIM_API cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *total = call.process.config.memory;
  *free = *total - call.process.devices.used[call.context()->physical];
  return CUDA_SUCCESS;
}

SIM_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = call.process.space.ranges.find(address);
  if (found == call.process.space.ranges.end() || found->second.kind != RangeKind::kAlloc) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (call.process.Off(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)) return CUDA_ERROR_NOT_SUPPORTED;
  const Range& range = found->second;
  if (call.process.config.integrated.contains(range.block->device())) return CUDA_ERROR_INVALID_VALUE;
  const MemoryBlock& block = *range.block;
  const MemoryHandleBytes bytes{kMagic, block.header().id, NonceOf(range), range.offset, getpid(), block.descriptor(),
                                {}};
  std::memcpy(handle, &bytes, sizeof(bytes));
  return CUDA_SUCCESS;
}

SIM_API cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  Process& process = call.process;
  if (address == nullptr || flags != kIpcMemLazyEnablePeerAccess) return CUDA_ERROR_INVALID_VALUE;
  MemoryHandleBytes bytes{};
  std::memcpy(&bytes, &handle, sizeof(bytes));
  if (bytes.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  if (bytes.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (Range* again = FindImport(process, bytes.nonce)) {
    if (!process.config.guest) return CUDA_ERROR_ALREADY_MAPPED;
    ++again->opens;
    *address = again->opened;
    return CUDA_SUCCESS;
  }
  CUresult why = CUDA_SUCCESS;
  auto block = BlockOf(bytes, &why);
  if (block == nullptr) return why;
  const int ordinal = process.devices.OrdinalOf(block->device());
  if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;  // strict: hardware would open it without an ordinal
  if (ordinal != call.context()->ordinal && !process.config.peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const uint64_t base = process.space.Reserve(block->size());
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!block->header().importers.Add(getpid(), UnitOf(bytes.offset))) {
    process.space.Free(base, block->size());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = base + bytes.offset;
  // Maps the whole block, so that neighbouring allocations can be read, as on hardware.
  process.space.ranges[base] = Range{.base = base,
                                     .size = block->size(),
                                     .kind = RangeKind::kLegacyImport,
                                     .block = block,
                                     .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                     .id = process.NextId(),
                                     .reservation_base = base,
                                     .reservation_size = block->size(),
                                     .opened = *address,
                                     .nonce = bytes.nonce,
                                     .opens = 1};
  return CUDA_SUCCESS;
}

SIM_API cuIpcCloseMemHandle(CUdeviceptr address) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  Range* found = call.process.space.Find(address);
  if (found == nullptr || found->kind != RangeKind::kLegacyImport || found->opened != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->opens > 0) return CUDA_SUCCESS;
  if (!call.process.config.guest) call.process.RefuseQueuedWork(__func__, found->base, found->size);
  Destroy(call.process, found->base);
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
