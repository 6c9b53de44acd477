// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/copy.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

bool ToDevice(const Copy& copy) { return copy.kind != CopyKind::kDeviceToHost && !copy.to_mapped; }
bool FromDevice(const Copy& copy) {
  return (copy.kind == CopyKind::kDeviceToHost || copy.kind == CopyKind::kDeviceToDevice) && !copy.from_mapped;
}

// Replaces the device's addresses of registered host memory by the host's. False: a part is not registered.
bool FindMapped(const Process& process, Copy& copy) {
  for (auto [address, mapped] : {std::pair(&copy.to, &copy.to_mapped), std::pair(&copy.from, &copy.from_mapped)}) {
    const auto place = process.host.Find(*address);
    *mapped = place.has_value() && place->of_device;
    if (!*mapped) continue;
    if (!process.host.Find(*address, copy.bytes).has_value()) return false;
    *address = place->host;
  }
  return true;
}

// Whether the device may access registered host memory.
bool MayAccessHost(const Process& process, int32_t ordinal, uint64_t address, uint64_t bytes, bool write) {
  const auto place = process.host.Find(address, bytes);
  return place.has_value() && place->Allows(ordinal, write);
}

CUresult RefuseCopy(const Copy& copy, const char* what) {
  std::fprintf(stderr, "simulated_cuda: %s of %llu bytes: %s -> 700, sticky\n", copy.symbol,
               static_cast<unsigned long long>(copy.bytes), what);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

// Whether the device may access the memory: mapped memory has separate access rights for each device.
bool MayAccess(Process& process, int32_t ordinal, uint64_t address, uint64_t bytes, CUmemAccess_flags access) {
  const Range* range = process.space.Find(address, bytes);
  if (range == nullptr || range->kind != RangeKind::kVmm) return true;
  if (process.devices.Physical(ordinal) == range->block->device()) return true;
  const auto rights = range->access_of_others.find(ordinal);
  return rights != range->access_of_others.end() && (rights->second & access) == access;
}

// Performs the copy now.
CUresult Execute(Process& process, const Copy& copy) {
  ++process.work_done;
  auto* to = reinterpret_cast<std::byte*>(copy.to);
  const auto* from = reinterpret_cast<const std::byte*>(copy.from);
  if (copy.to_mapped && !MayAccessHost(process, copy.to_ordinal, copy.to, copy.bytes, true)) {
    return RefuseCopy(copy, "the destination is host memory that was registered read-only, or for another device");
  }
  if (copy.from_mapped && !MayAccessHost(process, copy.from_ordinal, copy.from, copy.bytes, false)) {
    return RefuseCopy(copy, "the source is host memory that is not registered for this device");
  }
  if (ToDevice(copy) && !MayAccess(process, copy.to_ordinal, copy.to, copy.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
    return RefuseCopy(copy, "the destination is another device's, and was not mapped for this one");
  }
  if (FromDevice(copy) &&
      !MayAccess(process, copy.from_ordinal, copy.from, copy.bytes, CU_MEM_ACCESS_FLAGS_PROT_READ)) {
    return RefuseCopy(copy, "the source is another device's, and was not mapped for this one");
  }
  if (ToDevice(copy)) {
    to = process.space.Bytes(copy.to, copy.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (to == nullptr) {
      const bool mapped = process.space.Find(copy.to, copy.bytes) != nullptr;
      return RefuseCopy(copy, mapped ? "the destination may not be written" : "the destination is not mapped");
    }
  }
  if (FromDevice(copy)) {
    from = process.space.Bytes(copy.from, copy.bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (from == nullptr) return RefuseCopy(copy, "the source may not be read");
  }
  if (copy.kind == CopyKind::kFill) {
    for (uint64_t i = 0; i < copy.bytes; i += copy.fill_bytes) std::memcpy(to + i, &copy.fill, copy.fill_bytes);
    return CUDA_SUCCESS;
  }
  if (to < from + copy.bytes && from < to + copy.bytes)
    Violation(copy.symbol, "source and destination overlap", copy.to);
  std::memcpy(to, from, copy.bytes);
  return CUDA_SUCCESS;
}

enum class Host : uint8_t { kGoesOn, kWaits };

CUresult Enqueue(Call& call, Copy copy, CUstream stream, Host host) {
  Process& process = call.process;
  const auto found = process.FindStream(copy.symbol, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = process.capture.RefusalToUse(*found)) return captured;
  for (int32_t* ordinal : {&copy.to_ordinal, &copy.from_ordinal}) {
    if (*ordinal < 0) *ordinal = call.context()->ordinal;
  }
  if (copy.bytes == 0) return CUDA_SUCCESS;
  const uint64_t named_to = copy.to;
  const uint64_t named_from = copy.from;
  if (!FindMapped(process, copy)) return CUDA_ERROR_INVALID_VALUE;
  if (copy.kind == CopyKind::kByAddress) {
    const bool to = copy.to_mapped || process.space.IsDevice(copy.to);
    const bool from = copy.from_mapped || process.space.IsDevice(copy.from);
    if (!to && !from) return CUDA_ERROR_INVALID_VALUE;
    copy.kind = to && from ? CopyKind::kDeviceToDevice : to ? CopyKind::kHostToDevice : CopyKind::kDeviceToHost;
  }
  if (ToDevice(copy) && process.space.Find(copy.to, copy.bytes) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (copy.kind == CopyKind::kFill && copy.to % copy.fill_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (FromDevice(copy) && process.space.Find(copy.from, copy.bytes) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t to = ToDevice(copy) || copy.to_mapped ? named_to : 0;
  const uint64_t from = FromDevice(copy) || copy.from_mapped ? named_from : 0;
  Work work{.symbol = copy.symbol, .run = {}, .to = to, .from = from, .size = copy.bytes};
  const bool pageable = copy.kind == CopyKind::kHostToDevice && !process.host.Find(copy.from).has_value();
  if (pageable && host == Host::kWaits) {
    if (const CUresult before = found->Run(call.lock, found->tail(), process.changed)) return before;
  }
  // Hardware reads pageable sources before it returns; in strict mode no caller may rely on that with Async.
  std::shared_ptr<std::vector<std::byte>> staged;
  if (pageable && (process.config.guest || host == Host::kWaits)) {
    const auto* source = reinterpret_cast<const std::byte*>(copy.from);
    staged = std::make_shared<std::vector<std::byte>>(source, source + copy.bytes);
    copy.from = reinterpret_cast<uint64_t>(staged->data());
  }
  work.run = [&process, copy, staged](Lock&) { return Execute(process, copy); };
  process.Enqueue(found, std::move(work));
  const bool on_host = copy.kind == CopyKind::kDeviceToHost || (copy.kind == CopyKind::kHostToDevice && !pageable);
  return host == Host::kWaits && on_host ? found->Run(call.lock, found->tail(), process.changed) : CUDA_SUCCESS;
}

}  // namespace

CUresult EnqueueCopy(Copy copy, CUstream stream) {
  Call call(copy.symbol, Needs::kContext);
  return call.refused() ? call.refused() : Enqueue(call, copy, stream, Host::kGoesOn);
}

CUresult CopyNow(const Copy& copy) {
  Call call(copy.symbol, Needs::kContext);
  return call.refused() ? call.refused() : Enqueue(call, copy, nullptr, Host::kWaits);
}

SIM_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kHostToDevice, to, reinterpret_cast<uint64_t>(from), bytes}, stream);
}

SIM_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kDeviceToHost, reinterpret_cast<uint64_t>(to), from, bytes}, stream);
}

SIM_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kDeviceToDevice, to, from, bytes}, stream);
}

SIM_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kByAddress, to, from, bytes}, stream);
}

SIM_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                          CUstream stream) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const Context* writer = call.process.devices.Known(to_context);
  const Context* reader = call.process.devices.Known(from_context);
  if (writer == nullptr || reader == nullptr || !writer->alive() || !reader->alive()) return CUDA_ERROR_INVALID_CONTEXT;
  Copy copy{__func__, CopyKind::kDeviceToDevice, to, from, bytes};
  copy.to_ordinal = writer->ordinal;
  copy.from_ordinal = reader->ordinal;
  return Enqueue(call, copy, stream, Host::kGoesOn);
}

SIM_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return EnqueueCopy({__func__, CopyKind::kFill, to, 0, bytes, value}, stream);
}

}  // namespace arraybridge::simulated
