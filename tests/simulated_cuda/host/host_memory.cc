// SPDX-License-Identifier: Apache-2.0
// Pinned host memory: allocated by the driver, or a client's memory that the client registers.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <sys/mman.h>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

constexpr uint64_t kPage = 4096;

// The access rights of [base, base + size) in this process: the PROT_* bits that all of it has, or -1 if a part is not
// mapped.
int ProtectionOf(uint64_t base, uint64_t size) {
  std::ifstream maps("/proc/self/maps");
  int common = PROT_READ | PROT_WRITE;
  uint64_t covered = base;
  for (std::string line; std::getline(maps, line) && covered < base + size;) {
    std::istringstream fields(line);
    uint64_t start = 0;
    uint64_t end = 0;
    char dash = 0;
    std::string access;
    fields >> std::hex >> start >> dash >> end >> access;
    if (end <= covered) continue;
    if (start > covered) return -1;
    common &= (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0);
    covered = end;
  }
  return covered < base + size ? -1 : common;
}

// Ends the process if queued work uses the memory, or may use it: the addresses that a kernel uses are not known.
void RefuseWork(Process& process, const char* symbol, uint64_t base, const HostRange& range) {
  process.RefuseQueuedWork(symbol, base, range.size);
  if (range.device != 0) process.RefuseQueuedWork(symbol, range.device, range.size);
  for (const auto& stream : process.AllStreams()) {
    if (!stream->idle() && !process.config.guest) Violation(symbol, "work is queued that may use it", base);
  }
}

CUresult Forget(Process& process, const char* symbol, uint64_t base, bool registered, CUresult unknown) {
  const HostRange* const found = process.host.At(base);
  if (found == nullptr || found->registered != registered) return unknown;
  const HostRange range = *found;
  RefuseWork(process, symbol, base, range);
  if (registered && ProtectionOf(base, range.size) < 0) Violation(symbol, "it was unmapped while registered", base);
  if (!registered) munmap(reinterpret_cast<void*>(base), range.size);
  if (registered && range.device != 0) process.space.Free(range.device, range.size);
  process.host.Remove(base);
  return CUDA_SUCCESS;
}

// Whether this driver can register memory with these flags.
CUresult RefusalOf(const Process& process, uint64_t base, uint32_t flags) {
  if (process.Off(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)) return CUDA_ERROR_NOT_SUPPORTED;
  const bool mapped = (flags & kMemHostRegisterDeviceMap) != 0;
  if (mapped && process.Off(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)) return CUDA_ERROR_NOT_SUPPORTED;
  if (mapped && base % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool read_only = (flags & kMemHostRegisterReadOnly) != 0;
  const bool refused = read_only && process.Off(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
  return refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

}  // namespace

SIM_API cuMemHostAlloc(void** address, size_t bytes, unsigned int) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto base = reinterpret_cast<uint64_t>(memory);
  call.process.host.Add(base, {.size = bytes, .ordinal = call.context()->ordinal, .device = base});
  *address = memory;
  return CUDA_SUCCESS;
}

SIM_API cuMemFreeHost(void* address) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  return Forget(call.process, __func__, reinterpret_cast<uint64_t>(address), false, CUDA_ERROR_INVALID_VALUE);
}

SIM_API cuMemHostRegister_v2(void* address, size_t bytes, unsigned int flags) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto base = reinterpret_cast<uint64_t>(address);
  if (address == nullptr || bytes == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = RefusalOf(call.process, base, flags)) return refused;
  const bool read_only = (flags & kMemHostRegisterReadOnly) != 0;
  if (call.process.host.Overlaps(base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const int protection = ProtectionOf(base, bytes);
  const int needed = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  if (protection < 0 || (protection & needed) != needed) return CUDA_ERROR_INVALID_VALUE;
  HostRange range{.size = bytes,
                  .registered = true,
                  .read_only = read_only,
                  .portable = (flags & kMemHostRegisterPortable) != 0,
                  .ordinal = call.context()->ordinal};
  if ((flags & kMemHostRegisterDeviceMap) != 0) {
    range.device = call.process.space.Reserve(bytes);
    if (range.device == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  call.process.host.Add(base, range);
  return CUDA_SUCCESS;
}

SIM_API cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned int flags) {
  const Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (device == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto place = call.process.host.Find(reinterpret_cast<uint64_t>(host));
  if (!place.has_value() || place->of_device || !place->Allows(call.context()->ordinal, false)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = place->device();
  return CUDA_SUCCESS;
}

SIM_API cuMemHostUnregister(void* address) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  return Forget(call.process, __func__, reinterpret_cast<uint64_t>(address), true,
                CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

}  // namespace arraybridge::simulated
