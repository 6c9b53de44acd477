// Copies and fills: enqueued with their device ranges checked, and checked again when they happen.
#pragma once

#include <cstdint>

#include "proto/boundary/driver_abi.h"

namespace arraybridge::simulated {

enum class CopyKind : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kByAddress, kFill };

struct Copy {
  const char* symbol = "";
  CopyKind kind = CopyKind::kByAddress;  // kByAddress: what the addresses say
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
  uint8_t fill = 0;
  int32_t ordinal = 0;  // of the device that does it
};

// Enqueues the copy to `stream`; `wait`: and runs the stream up to it.
cuda::CUresult EnqueueCopy(Copy copy, cuda::CUstream stream, bool wait);

}  // namespace arraybridge::simulated
