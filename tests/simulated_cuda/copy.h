// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Their device ranges are checked when they are enqueued, and again when they run.
#pragma once

#include <cstdint>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::simulated {

enum class CopyKind : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kByAddress, kFill };

struct Copy {
  const char* symbol = "";
  CopyKind kind = CopyKind::kByAddress;  // kByAddress: determined by the addresses
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
  uint32_t fill = 0;
  uint8_t fill_bytes = 1;  // size of the value that a fill repeats
  // Ordinals of the devices that write and read the bytes; -1: that of the current context.
  int32_t to_ordinal = -1;
  int32_t from_ordinal = -1;
  // Of an end that was named by the address that devices have for registered host memory: the end is the host's
  // address.
  bool to_mapped = false;
  bool from_mapped = false;
};

// Enqueues the copy to `stream`.
cuda::CUresult EnqueueCopy(Copy copy, cuda::CUstream stream);

// A copy or fill on the legacy stream by a call without Async in its name. As on hardware, the host waits for copies to
// it and from pinned memory. It waits neither for work on the device, nor for the last part of a copy from pageable
// memory, whose bytes it has read when it returns.
cuda::CUresult CopyNow(const Copy& copy);

}  // namespace arraybridge::simulated
