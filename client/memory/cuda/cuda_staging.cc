// SPDX-License-Identifier: Apache-2.0
#include "client/memory/cuda/cuda_staging.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "proto/boundary/mutex.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUevent;
using cuda::CUstream;
using cuda::Driver;

namespace {

// The pinned chunks that no copy uses. Thread-safe.
class FreeChunks {
 public:
  // Never destroyed: the driver owns pinned memory.
  static FreeChunks& OfThisProcess() {
    static auto* const chunks = new FreeChunks;
    return *chunks;
  }

  // Null: all are in use, or the driver cannot pin memory.
  std::byte* Take(const Driver& driver) {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        std::byte* const taken = free_.back();
        free_.pop_back();
        return taken;
      }
      if (made_ == kChunksMax) return nullptr;
      ++made_;
    }
    void* memory = nullptr;
    if (driver.MemHostAlloc(&memory, kChunkBytes, cuda::kMemHostAllocPortable) == cuda::CUDA_SUCCESS) {
      return static_cast<std::byte*>(memory);
    }
    MutexLock lock(mutex_);
    --made_;
    return nullptr;
  }
  void Release(std::byte* chunk) {
    MutexLock lock(mutex_);
    free_.push_back(chunk);
  }

 private:
  Mutex mutex_;
  std::vector<std::byte*> free_ AB_GUARDED_BY(mutex_);
  size_t made_ AB_GUARDED_BY(mutex_) = 0;
};

// A chunk, and the event that occurs when the device has finished with it.
class Chunk {
 public:
  Chunk() = default;
  ~Chunk() {
    if (event_ != nullptr) driver_->EventDestroy(event_);
    if (data_ != nullptr) FreeChunks::OfThisProcess().Release(data_);
  }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  bool Take(const Driver& driver) {
    data_ = FreeChunks::OfThisProcess().Take(driver);
    if (data_ == nullptr) return false;
    driver_ = &driver;
    return driver.EventCreate(&event_, cuda::kEventDisableTiming | cuda::kEventBlockingSync) == cuda::CUDA_SUCCESS;
  }
  std::byte* data() const { return data_; }
  Status Mark(CUstream stream) const { return driver_->Check(driver_->EventRecord(event_, stream), "cuEventRecord"); }
  Status Wait() const { return driver_->Check(driver_->EventSynchronize(event_), "cuEventSynchronize"); }

 private:
  const Driver* driver_ = nullptr;
  std::byte* data_ = nullptr;
  CUevent event_ = nullptr;
};

using TwoChunks = std::array<Chunk, 2>;

// Alignment of pieces inside a chunk.
constexpr uint64_t kPieceAlignment = 256;
uint64_t NextPiece(uint64_t used) {
  return std::min(kChunkBytes, (used + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment);
}

Status ToDevice(const Driver& driver, const TwoChunks& chunks, std::span<const HostToDevice> copies, CUstream stream) {
  uint64_t turn = 0;
  uint64_t used = 0;  // of the current chunk
  for (const HostToDevice& copy : copies) {
    for (uint64_t done = 0; done < copy.bytes;) {
      const Chunk& chunk = chunks[turn % 2];
      if (used == 0 && turn >= 2) AB_RETURN_IF_ERROR(chunk.Wait());
      const uint64_t size = std::min(kChunkBytes - used, copy.bytes - done);
      std::memcpy(chunk.data() + used, copy.from + done, size);
      AB_RETURN_IF_ERROR(driver.Check(driver.MemcpyHtoDAsync(copy.to + done, chunk.data() + used, size, stream),
                                      "cuMemcpyHtoDAsync", size, " bytes"));
      done += size;
      used = NextPiece(used + size);
      if (used < kChunkBytes) continue;
      AB_RETURN_IF_ERROR(chunk.Mark(stream));
      ++turn;
      used = 0;
    }
  }
  return Ok();
}

// While one piece is transferred, the previous one is copied out of the other chunk.
Status ToHost(const Driver& driver, const TwoChunks& chunks, CUdeviceptr from, std::byte* to, uint64_t bytes,
              CUstream stream) {
  const uint64_t pieces = (bytes + kChunkBytes - 1) / kChunkBytes;
  const auto size_of = [&](uint64_t piece) { return std::min(kChunkBytes, bytes - piece * kChunkBytes); };
  for (uint64_t piece = 0; piece <= pieces; ++piece) {
    if (piece < pieces) {
      const Chunk& chunk = chunks[piece % 2];
      AB_RETURN_IF_ERROR(
          driver.Check(driver.MemcpyDtoHAsync(chunk.data(), from + piece * kChunkBytes, size_of(piece), stream),
                       "cuMemcpyDtoHAsync", size_of(piece), " bytes"));
      AB_RETURN_IF_ERROR(chunk.Mark(stream));
    }
    if (piece == 0) continue;
    const Chunk& before = chunks[(piece - 1) % 2];
    AB_RETURN_IF_ERROR(before.Wait());
    std::memcpy(to + (piece - 1) * kChunkBytes, before.data(), size_of(piece - 1));
  }
  return Ok();
}

template <class Copy>
Result<bool> Staged(const Driver& driver, CUstream stream, Copy copy) {
  TwoChunks chunks;
  if (!chunks[0].Take(driver) || !chunks[1].Take(driver)) return false;
  const Status queued = copy(chunks);
  // Synchronise even after an error: queued copies may still use the chunks.
  const Status done = driver.Check(driver.StreamSynchronize(stream), "cuStreamSynchronize");
  AB_RETURN_IF_ERROR(queued);
  AB_RETURN_IF_ERROR(done);
  return true;
}

}  // namespace

Result<bool> CopyStagedToDevice(const Driver& driver, std::span<const HostToDevice> copies, CUstream stream) {
  return Staged(driver, stream, [&](const TwoChunks& chunks) { return ToDevice(driver, chunks, copies, stream); });
}

Result<bool> CopyStagedToHost(const Driver& driver, CUdeviceptr from, std::byte* to, uint64_t bytes, CUstream stream) {
  return Staged(driver, stream,
                [&](const TwoChunks& chunks) { return ToHost(driver, chunks, from, to, bytes, stream); });
}

}  // namespace arraybridge
