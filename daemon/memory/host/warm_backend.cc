// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/host/warm_backend.h"

#include <algorithm>
#include <iterator>

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kSmallAtStart = 2ull << 20;  // the size of a session's first arena
constexpr uint64_t kLargeAtStart = 64ull << 20;
constexpr size_t kWishesMax = 8;

}  // namespace

WarmBackend::WarmBackend(MemoryBackend& inner, const WarmBackendOptions& options)
    : inner_(inner), cache_bytes_(options.cache_bytes) {
  const MutexLock lock(mutex_);
  for (const Device& device : inner_.devices()) {
    if (options.large_at_start) Remember({device, inner_.Footprint(device, kLargeAtStart)});
    Remember({device, inner_.Footprint(device, kSmallAtStart)});
  }
}

void WarmBackend::Remember(const Wish& wish) {
  wishes_.remove(wish);
  wishes_.push_front(wish);
  if (wishes_.size() > kWishesMax) wishes_.pop_back();
}

std::unique_ptr<MemoryBlock> WarmBackend::TakeCached(const Wish& wish) {
  const auto found = std::ranges::find(cache_, wish, &Cached::wish);
  if (found == cache_.end()) return nullptr;
  std::unique_ptr<MemoryBlock> block = std::move(found->block);
  cache_.erase(found);
  return block;
}

uint64_t WarmBackend::CachedBytes() const {
  uint64_t bytes = 0;
  for (const Cached& cached : cache_) bytes += cached.wish.footprint;
  return bytes;
}

std::vector<WarmBackend::Wish> WarmBackend::Wanted() const {
  std::vector<Wish> wanted;
  uint64_t room = cache_bytes_;
  for (const Wish& wish : wishes_) {
    if (wish.footprint > room) continue;
    room -= wish.footprint;
    wanted.push_back(wish);
  }
  return wanted;
}

Result<std::unique_ptr<MemoryBlock>> WarmBackend::AllocateWithProgress(const Device& device, uint64_t size,
                                                                       const Progress& progress) {
  const Wish wish{device, inner_.Footprint(device, size)};
  if (wish.footprint != 0) {
    const MutexLock lock(mutex_);
    if (wish.footprint <= cache_bytes_) Remember(wish);
    if (auto block = TakeCached(wish); block != nullptr) return block;
  }
  auto fresh = inner_.AllocateWithProgress(device, size, progress);
  if (fresh.ok() || fresh.status().code() != Code::kResourceExhausted) return fresh;
  const MutexLock no_refill(refilling_);
  Trim();
  return inner_.AllocateWithProgress(device, size, progress);
}

MemoryBackend::Usage WarmBackend::usage(const Device& device) const {
  Usage usage = inner_.usage(device);
  const MutexLock lock(mutex_);
  for (const Cached& cached : cache_) {
    if (cached.wish.device == device) usage.cached_bytes += cached.wish.footprint;
  }
  return usage;
}

uint64_t WarmBackend::Trim() {
  std::vector<Cached> dead;  // destroyed after the lock is released: closing is O(bytes)
  const MutexLock lock(mutex_);
  const uint64_t bytes = CachedBytes();
  dead.swap(cache_);
  return bytes;
}

uint64_t WarmBackend::Refill() {
  const MutexLock refilling(refilling_);
  std::vector<Wish> missing;
  std::vector<Cached> dead;
  {
    const MutexLock lock(mutex_);
    const std::vector<Wish> wanted = Wanted();
    const auto unwanted = std::stable_partition(cache_.begin(), cache_.end(), [&](const Cached& cached) {
      return std::ranges::find(wanted, cached.wish) != wanted.end();
    });
    std::move(unwanted, cache_.end(), std::back_inserter(dead));
    cache_.erase(unwanted, cache_.end());
    for (const Wish& wish : wanted) {
      if (std::ranges::find(cache_, wish, &Cached::wish) == cache_.end()) missing.push_back(wish);
    }
  }
  dead.clear();
  uint64_t populated = 0;
  for (const Wish& wish : missing) {
    auto block = inner_.Allocate(wish.device, wish.footprint);
    if (!block.ok()) break;  // full: current requests have priority over the cache
    const MutexLock lock(mutex_);
    cache_.push_back({wish, *std::move(block)});
    populated += wish.footprint;
  }
  return populated;
}

}  // namespace arraybridge::daemon
