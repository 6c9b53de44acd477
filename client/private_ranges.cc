// A page that nobody wrote to is the file's own page, and shows what the file holds now, also when the range has been
// recycled for another share meanwhile: so a kept range is known by its place alone.
#include "client/private_ranges.h"

#include <algorithm>
#include <utility>

#include "client/memory/pagemap.h"

namespace arraybridge {

std::unique_ptr<Mapping> PrivateRanges::Take(uint64_t offset, uint64_t size) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(clean_.begin(), clean_.end(), [&](const Range& range) {
    return range.offset == offset && range.mapping->size() == size;
  });
  if (found == clean_.end()) return nullptr;
  auto mapping = std::move(found->mapping);
  clean_.erase(found);
  return mapping;
}

void PrivateRanges::GiveBack(uint64_t offset, std::unique_ptr<Mapping> range) {
  if (!NeverWritten(range->data(), range->size())) return;
  Range oldest;  // unmapped outside the lock
  MutexLock lock(mutex_);
  clean_.push_back({offset, std::move(range)});
  if (clean_.size() <= kRangesMax) return;
  oldest = std::move(clean_.front());
  clean_.pop_front();
}

}  // namespace arraybridge
