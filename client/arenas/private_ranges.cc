// A page of a private mapping that was never written is the file's own page. It always shows the current content of the
// file, also after the range was reused for another share. Therefore the key of a kept mapping is its position only.
#include "client/arenas/private_ranges.h"

#include <algorithm>
#include <iterator>

#include "client/memory/host/pagemap.h"

namespace arraybridge {

PrivateMapping::PrivateMapping(PrivateRanges& of, uint64_t offset, std::unique_ptr<Mapping> mapping)
    : of_(of), offset_(offset), mapping_(std::move(mapping)) {
  of_.Add(*this);
}

// Before it is unmapped, because another thread may map the address then.
PrivateMapping::~PrivateMapping() { of_.Remove(*this); }

void PrivateRanges::Add(const PrivateMapping& mapping) {
  const MutexLock lock(mutex_);
  all_.emplace(mapping.data(), std::pair(mapping.offset(), mapping.size()));
  any_.store(true, std::memory_order_relaxed);
}

void PrivateRanges::Remove(const PrivateMapping& mapping) {
  const MutexLock lock(mutex_);
  all_.erase(mapping.data());
}

std::optional<uint64_t> PrivateRanges::Find(const std::byte* data, uint64_t bytes) const {
  if (!any_.load(std::memory_order_relaxed)) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto after = all_.upper_bound(data);
  if (after == all_.begin()) return std::nullopt;
  const auto& [start, range] = *std::prev(after);
  const auto inside = static_cast<uint64_t>(data - start);
  if (inside > range.second || bytes > range.second - inside) return std::nullopt;
  return range.first + inside;
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

void PrivateRanges::GiveBack(std::unique_ptr<PrivateMapping> range) {
  if (!NeverWritten(range->data(), range->size())) return;
  std::unique_ptr<PrivateMapping> oldest;  // unmapped outside the lock
  MutexLock lock(mutex_);
  clean_.push_back(std::move(range));
  if (clean_.size() <= kRangesMax) return;
  oldest = std::move(clean_.front());
  clean_.pop_front();
}

}  // namespace arraybridge
