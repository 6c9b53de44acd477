// A Handle names bytes that another process owns: which arena, where in it, and the descriptor or the opaque bytes
// with which it can be opened. Owner and borrower speak of memory in these words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// DLPack's DLDeviceType and the ordinal inside this process; `uuid` is what crosses a process boundary.
struct Device {
  int32_t type = 1;
  int32_t id = 0;
  std::string uuid;

  friend bool operator==(const Device&, const Device&) = default;
};
inline constexpr int32_t kDeviceCpu = 1;
inline constexpr int32_t kDeviceCuda = 2;

enum class HandleKind : uint8_t { kMemfd = 1, kCudaVmm = 2, kCudaIpc = 3 };

// As people read it: in tables, labels, messages and from Python.
constexpr std::string_view NameOf(HandleKind kind) {
  switch (kind) {
    case HandleKind::kMemfd:
      return "memfd";
    case HandleKind::kCudaVmm:
      return "cuda_vmm";
    case HandleKind::kCudaIpc:
      return "cuda_ipc";
  }
  return "unknown";
}

// Why a device is not shared by a kind of handle: configured so; no such thing in device, driver or platform; or it
// failed for good. Numbers as in broker.proto.
enum class RefusalCause : uint8_t { kConfiguration = 1, kHardware = 2, kFailed = 3 };

// kWrite is for the one producer of an arena, kRead for everybody else.
enum class Access : uint8_t { kRead, kWrite };

// kByContract: only the living producer can still write. kEnforced: nobody can.
enum class Immutability : uint8_t { kByContract = 1, kEnforced = 2 };

// Array offsets are multiples of this: TensorFlow aborts the process below 64, JAX copies silently.
inline constexpr uint64_t kArrayAlignment = 256;

struct Handle {
  HandleKind kind = HandleKind::kMemfd;
  UniqueFd descriptor;  // memfd, CUDA VMM
  std::string opaque;   // cudaIpcMemHandle
  uint64_t arena = 0;
  uint64_t generation = 0;  // random at creation; never matches in another life of the broker
  uint64_t offset = 0;      // bytes
  uint64_t size = 0;        // bytes
  uint64_t arena_size = 0;  // bytes of the whole arena
  Device device;
};

}  // namespace arraybridge
