// Copies between pageable host memory and a GPU, by way of pinned chunks: a driver copies from and to pageable memory
// piece by piece on the calling thread, several times slower than the bus. Here one chunk is filled while the other
// travels. The chunks are few, shared by all GPUs, and kept: pinning costs more than copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/memory/cuda_devices.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// From this many bytes on it is worth it.
inline constexpr uint64_t kStagedBytesMin = 1ull << 20;
inline constexpr uint64_t kChunkBytes = 4ull << 20;
inline constexpr size_t kChunksMax = 8;  // of the process; two serve one copy

// Bytes in host memory, and where on a GPU they go.
struct HostToDevice {
  const std::byte* from;
  cuda::CUdeviceptr to;
  uint64_t bytes;
};

// Whether the bytes were copied: false if no chunks are free, or the driver pins no memory; then nothing was queued. In
// the order of `stream`, and done on return. REQUIRES: a scope of the GPU lives on this thread.
// Small copies share a chunk: many of them cost one wait.
Result<bool> CopyStagedToDevice(const cuda::Driver& driver, std::span<const HostToDevice> copies,
                                cuda::CUstream stream);
Result<bool> CopyStagedToHost(const cuda::Driver& driver, cuda::CUdeviceptr from, std::byte* to, uint64_t bytes,
                              cuda::CUstream stream);

}  // namespace arraybridge
