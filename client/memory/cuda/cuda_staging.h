// SPDX-License-Identifier: Apache-2.0
// Copies between pageable host memory and a GPU through pinned chunks. A driver copies pageable memory piece by piece
// on the calling thread, several times slower than the bus. Here one chunk is filled while the other is transferred.
// The chunks are few, shared by all GPUs, and kept, because pinning costs more than copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/memory/cuda/cuda_devices.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Smaller copies do not use the chunks.
inline constexpr uint64_t kStagedBytesMin = 1ull << 20;
inline constexpr uint64_t kChunkBytes = 4ull << 20;
inline constexpr size_t kChunksMax = 8;  // per process; a copy uses two

// Bytes in host memory, and their destination on a GPU.
struct HostToDevice {
  const std::byte* from;
  cuda::CUdeviceptr to;
  uint64_t bytes;
};

// Copies in the order of `stream` and returns true when the copies are complete. False: no chunks are free, or the
// driver cannot pin memory; then no work was queued. Small copies share a chunk, so many of them cost one wait.
// REQUIRES: a scope of the GPU lives on this thread.
Result<bool> CopyStagedToDevice(const cuda::Driver& driver, std::span<const HostToDevice> copies,
                                cuda::CUstream stream);
Result<bool> CopyStagedToHost(const cuda::Driver& driver, cuda::CUdeviceptr from, std::byte* to, uint64_t bytes,
                              cuda::CUstream stream);

}  // namespace arraybridge
