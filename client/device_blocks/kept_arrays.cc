// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/device_blocks/kept_arrays.h>

#include <utility>

#include "client/arenas/placement_range.h"

namespace arraybridge {

void KeptArrays::Keep(const std::shared_ptr<Placement::Range>& range, std::vector<View> arrays) {
  Sweep();
  const MutexLock lock(mutex_);
  entries_.push_back({range, range.get(), std::move(arrays)});
}

void KeptArrays::Forget(const Placement::Range& range) {
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.identity != &range) continue;
    entry.identity = nullptr;
    entry.range.reset();
  }
}

void KeptArrays::Sweep() {
  std::vector<Entry> over;  // destroyed without the lock
  const MutexLock lock(mutex_);
  over.reserve(entries_.size());
  std::erase_if(entries_, [&over](Entry& entry) {
    const auto range = entry.range.lock();
    if (range != nullptr) {
      if (range->releases->written().IsHeldByBroker(*range->arena, range->offset)) return false;
      range->published.store(false);
    }
    over.push_back(std::move(entry));
    return true;
  });
}

size_t KeptArrays::count() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace arraybridge
