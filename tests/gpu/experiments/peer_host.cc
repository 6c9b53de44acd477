// SPDX-License-Identifier: Apache-2.0
// Sealed host memory for reading by a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

constexpr size_t kBytes = size_t{2} << 20;

// host_block read|readonly|late: registers a sealed memfd's read-only map without the flag, with it, or a writable map
// before F_SEAL_WRITE; the value: the result of sealing.
Reply HostBlock(State& state, const Words& words) {
  const UniqueFd file(::memfd_create("block", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ::ftruncate(file.get(), kBytes) != 0) return {cuda::CUDA_ERROR_OPERATING_SYSTEM};
  const bool late = words[0] == "late";
  if (!late && ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE) != 0) {
    return {cuda::CUDA_ERROR_OPERATING_SYSTEM};
  }
  const int protection = late ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const map = ::mmap(nullptr, kBytes, protection, MAP_SHARED, file.get(), 0);
  const unsigned flags = words[0] == "readonly" ? cuda::kMemHostRegisterReadOnly : 0;
  const CUresult result = state.Call("cuMemHostRegister", state.driver.MemHostRegister, map, kBytes, flags);
  if (result != cuda::CUDA_SUCCESS || !late) return {result};
  // The map is removed; then only the driver keeps the pages pinned.
  const int with_map = ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0 ? 0 : errno;
  const CUresult given_back = state.Call("cuMemHostUnregister", state.driver.MemHostUnregister, map);
  ::munmap(map, kBytes);
  const int without = ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0 ? 0 : errno;
  return {given_back, Concat("sealing while registered: errno ", with_map, "; afterwards: errno ", without)};
}

// The device's attribute for read-only registration.
Reply ReadOnlySupported(State& state, const Words&) {
  int value = 0;
  const CUresult result = state.Call("cuDeviceGetAttribute", state.driver.DeviceGetAttribute, &value,
                                     cuda::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0);
  return {result, std::to_string(value)};
}

}  // namespace

void AddHostVerbs(Verbs& verbs) {
  verbs.insert({{"host_block", HostBlock}, {"read_only_supported", ReadOnlySupported}});
}

}  // namespace arraybridge::experiments
