// SPDX-License-Identifier: Apache-2.0
// A page of a private mapping that was never written is the file's own page. It always shows the current content of the
// file, also after the range was reused for another share. Therefore the key of a kept mapping is its position only.
#include "client/arenas/private_ranges.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "client/memory/host/pagemap.h"

namespace arraybridge {

void MappedRanges::Add(const std::byte* start, Range range) {
  const MutexLock lock(mutex_);
  span_.Note(start, range.size);
  ranges_.insert_or_assign(std::bit_cast<uintptr_t>(start), std::move(range));
}

void MappedRanges::Remove(const std::byte* start) {
  const MutexLock lock(mutex_);
  ranges_.erase(std::bit_cast<uintptr_t>(start));
}

std::optional<MappedRanges::Place> MappedRanges::Find(const void* data, uint64_t bytes) const {
  if (!span_.MayContain(data)) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto after = ranges_.upper_bound(std::bit_cast<uintptr_t>(data));
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [start, range] = *std::prev(after);
  const uint64_t inside = std::bit_cast<uintptr_t>(data) - start;
  if (inside > range.size || bytes > range.size - inside) return std::nullopt;
  auto arena = range.arena.lock();
  return arena == nullptr ? std::nullopt : std::optional(Place{std::move(arena), range.offset + inside, range.own});
}

PrivateMapping::PrivateMapping(PrivateRanges& of, uint64_t offset, std::unique_ptr<Mapping> mapping)
    : of_(of), offset_(offset), mapping_(std::move(mapping)) {
  if (of_.mapped_) of_.mapped_->Add(data(), {size(), of_.arena_, offset, true});
}

PrivateMapping::~PrivateMapping() {
  if (of_.mapped_) of_.mapped_->Remove(data());
}

void PrivateRanges::FindIn(std::shared_ptr<MappedRanges> mapped, std::weak_ptr<ReadArena> arena) {
  mapped_ = std::move(mapped);
  arena_ = std::move(arena);
}

std::unique_ptr<PrivateMapping> PrivateRanges::Take(uint64_t offset, uint64_t size) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(clean_.begin(), clean_.end(), [&](const auto& range) {
    return range->offset() == offset && range->size() == size;
  });
  if (found == clean_.end()) return nullptr;
  auto mapping = std::move(*found);
  clean_.erase(found);
  return mapping;
}

void PrivateRanges::Release(std::unique_ptr<PrivateMapping> range) {
  if (!NeverWritten(range->data(), range->size())) return;
  std::unique_ptr<PrivateMapping> oldest;  // unmapped outside the lock
  MutexLock lock(mutex_);
  clean_.push_back(std::move(range));
  if (clean_.size() <= kRangesMax) return;
  oldest = std::move(clean_.front());
  clean_.pop_front();
}

}  // namespace arraybridge
