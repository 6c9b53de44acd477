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

bool Overlaps(const Process& process, uint64_t base, uint64_t size) {
  const auto after = process.host.lower_bound(base + size);
  if (after == process.host.begin()) return false;
  const auto& last = *std::prev(after);
  return last.first + last.second.size > base;
}

CUresult Forget(Process& process, const char* symbol, uint64_t address, bool registered, CUresult unknown) {
  const auto found = process.host.find(address);
  if (found == process.host.end() || found->second.registered != registered) return unknown;
  for (const auto& stream : process.AllStreams()) {
    if (!stream->idle() && !process.config.guest) Violation(symbol, "work is queued that may use it", address);
  }
  if (!registered) munmap(reinterpret_cast<void*>(address), found->second.size);
  process.host.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuMemHostAlloc(void** address, size_t bytes, unsigned int) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  call.process.host[reinterpret_cast<uint64_t>(memory)] = {bytes, false};
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
  const bool read_only = (flags & kMemHostRegisterReadOnly) != 0;
  if (read_only && call.process.Off(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (Overlaps(call.process, base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const int protection = ProtectionOf(base, bytes);
  const int needed = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  if (protection < 0 || (protection & needed) != needed) return CUDA_ERROR_INVALID_VALUE;
  call.process.host[base] = {bytes, true};
  return CUDA_SUCCESS;
}

SIM_API cuMemHostUnregister(void* address) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  return Forget(call.process, __func__, reinterpret_cast<uint64_t>(address), true,
                CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

}  // namespace arraybridge::simulated
