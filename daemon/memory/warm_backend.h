// A WarmBackend is a MemoryBackend over another that keeps fresh blocks populated ahead of demand, of the sizes asked
// for lately: page faults, not bytes, are the cost of memory. It has no thread: a worker calls Refill.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/memory/memory_backend.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

struct WarmBackendOptions {
  uint64_t cache_bytes = 0;     // 0: nothing is kept
  bool large_at_start = false;  // one block of 64 MiB beside the one of 2 MiB before anybody has asked
};

class WarmBackend final : public MemoryBackend {
 public:
  // `inner` outlives it.
  WarmBackend(MemoryBackend& inner, const WarmBackendOptions& options);

  HandleKind kind() const override { return inner_.kind(); }
  std::vector<Device> devices() const override { return inner_.devices(); }
  uint64_t Footprint(const Device& device, uint64_t size) const override { return inner_.Footprint(device, size); }
  // A cached block of exactly that footprint, or a new one. When the inner backend is full the cache goes first.
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    return AllocateWithProgress(device, size, {});
  }
  Result<std::unique_ptr<MemoryBlock>> AllocateWithProgress(const Device& device, uint64_t size,
                                                            const Progress& progress) override;
  Usage usage(const Device& device) const override;
  uint64_t Trim() override;

  // Populates one block for every size asked for lately that has none, as far as cache_bytes go; gives up blocks of
  // sizes that nobody asks for any more. Slow: on a worker, at start and after each Allocate. Returns bytes populated.
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
  // What fits into cache_bytes when the latest wishes are served first.
  std::vector<Wish> Wanted() const AB_REQUIRES(mutex_);

  MemoryBackend& inner_;
  const uint64_t cache_bytes_;
  // Held while Refill populates: a block that is neither free nor in the cache yet must not make an Allocate fail.
  // Taken before mutex_.
  Mutex refilling_;
  mutable Mutex mutex_;
  std::list<Wish> wishes_ AB_GUARDED_BY(mutex_);  // the latest first
  std::vector<Cached> cache_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
