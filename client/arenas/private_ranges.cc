// A page of a private mapping that was never written is the file's own page. It always shows the current content of the
// file, also after the range was reused for another share. Therefore the key of a kept mapping is its position only.
#include "client/arenas/private_ranges.h"

#include <algorithm>
#include <utility>

#include "client/memory/host/pagemap.h"

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
