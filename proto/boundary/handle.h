// SPDX-License-Identifier: Apache-2.0
// A Handle identifies bytes that another process owns: the arena, the range in it, and the descriptor or opaque bytes
// that open it. Producers, borrowers and the daemon all describe memory in these terms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// DLPack's DLDeviceType and the ordinal in this process; `uuid` identifies the device in every process.
struct Device {
  int32_t type = 1;
  int32_t id = 0;
  std::string uuid;

  friend bool operator==(const Device&, const Device&) = default;
};
inline constexpr int32_t kDeviceCpu = 1;
inline constexpr int32_t kDeviceCuda = 2;

enum class HandleKind : uint8_t { kMemfd = 1, kCudaVmm = 2, kCudaIpc = 3 };

// The name in tables, labels, messages and Python.
constexpr std::string_view NameOf(HandleKind kind) {
  switch (kind) {
    case HandleKind::kMemfd:
      return "memfd";
    case HandleKind::kCudaVmm:
      return "cuda_vmm";
    case HandleKind::kCudaIpc:
      return "cuda_ipc";
  }
  return kind == HandleKind{} ? "disk" : "unknown";
}

// The reason why a device is not shared by a kind of handle: the configuration excludes it; the device, driver or
// platform does not support it; or it failed permanently. The numbers are those of broker.proto.
enum class RefusalCause : uint8_t { kConfiguration = 1, kHardware = 2, kFailed = 3 };

// kWrite is for the only producer of an arena, kRead for all other processes.
enum class Access : uint8_t { kRead, kWrite };

// kByContract: only the living producer can still write. kEnforced: no process can write.
enum class Immutability : uint8_t { kByContract = 1, kEnforced = 2 };

// The alignment of array offsets. With less than 64, TensorFlow aborts the process and JAX copies silently.
inline constexpr uint64_t kArrayAlignment = 256;

struct Handle {
  HandleKind kind = HandleKind::kMemfd;
  UniqueFd descriptor;  // memfd, CUDA VMM
  std::string opaque;   // cudaIpcMemHandle
  uint64_t arena = 0;
  uint64_t generation = 0;  // random at creation; differs after a restart of the broker
  uint64_t offset = 0;      // bytes
  uint64_t size = 0;        // bytes
  uint64_t arena_size = 0;  // bytes of the whole arena
  Device device;
};

}  // namespace arraybridge
