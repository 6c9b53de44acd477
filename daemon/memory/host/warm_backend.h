// SPDX-License-Identifier: Apache-2.0
// A WarmBackend is a MemoryBackend on top of another one. It keeps fresh blocks populated ahead of demand, in the sizes
// that were requested lately, because page faults, not bytes, are the cost of new memory. It has no thread: a worker
// calls Refill.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/memory/memory_backend.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

struct WarmBackendOptions {
  uint64_t cache_bytes = 0;     // 0: no block is kept
  bool large_at_start = false;  // a block of 64 MiB in addition to 2 MiB before the first request
};

class WarmBackend final : public MemoryBackend {
 public:
  // `inner` must outlive this object.
  WarmBackend(MemoryBackend& inner, const WarmBackendOptions& options);

  HandleKind kind() const override { return inner_.kind(); }
  std::vector<Device> devices() const override { return inner_.devices(); }
  uint64_t Footprint(const Device& device, uint64_t size) const override { return inner_.Footprint(device, size); }
  // Returns a cached block of exactly this footprint, or a new one. If the inner backend is full, the cache is freed
  // first.
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    return AllocateWithProgress(device, size, {});
  }
  Result<std::unique_ptr<MemoryBlock>> AllocateWithProgress(const Device& device, uint64_t size,
                                                            const Progress& progress) override;
  Result<std::unique_ptr<MemoryBlock>> Adopt(const Device& device, uint64_t size, UniqueFd descriptor) override {
    return inner_.Adopt(device, size, std::move(descriptor));
  }
  Usage usage(const Device& device) const override;
  uint64_t Trim() override;

  // Populates one block for each recently requested size that has none, within cache_bytes; frees blocks of sizes that
  // are no longer requested. Slow: call it on a worker, at the start and after each Allocate. Returns the bytes
  // populated.
  uint64_t Refill();

 private:
  struct Wish {
    Device device;
    uint64_t footprint = 0;
    friend bool operator==(const Wish&, const Wish&) = default;
  };
  struct Cached {
    Wish wish;
    std::unique_ptr<MemoryBlock> block;
  };

  void Remember(const Wish& wish) AB_REQUIRES(mutex_);
  std::unique_ptr<MemoryBlock> TakeCached(const Wish& wish) AB_REQUIRES(mutex_);
  uint64_t CachedBytes() const AB_REQUIRES(mutex_);
  // The wishes that fit into cache_bytes, the latest first.
  std::vector<Wish> Wanted() const AB_REQUIRES(mutex_);

  MemoryBackend& inner_;
  const uint64_t cache_bytes_;
  // Held while Refill populates, so that Allocate does not fail because of a block that is neither free nor cached yet.
  // Acquired before mutex_.
  Mutex refilling_;
  mutable Mutex mutex_;
  std::list<Wish> wishes_ AB_GUARDED_BY(mutex_);  // the latest first
  std::vector<Cached> cache_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge::daemon
