// SPDX-License-Identifier: Apache-2.0
#include "client/catalogue/share_cache.h"

#include <utility>

namespace arraybridge {

std::shared_ptr<const KnownShare> ShareCache::Find(std::string_view description) const {
  const size_t place = PlaceOf(description);
  MutexLock lock(mutex_);
  const auto& known = known_[place];
  return known && known->description == description ? known : nullptr;
}

std::shared_ptr<const KnownShare> ShareCache::Find(uint64_t share) const {
  MutexLock lock(mutex_);
  if (by_id_.empty()) return nullptr;
  const auto& known = by_id_[share % kIdsMax];
  return known && known->share.id == share ? known : nullptr;
}

void ShareCache::Add(std::shared_ptr<const KnownShare> known) {
  if (known->description.size() > kDescriptionBytesMax) return;
  std::shared_ptr<const KnownShare> by_id = known;
  const bool described = !known->description.empty();
  const size_t place = PlaceOf(known->description);
  MutexLock lock(mutex_);
  if (by_id_.empty()) by_id_.resize(kIdsMax);
  std::swap(by_id_[known->share.id % kIdsMax], by_id);  // the displaced entry is destroyed outside the lock
  if (described) std::swap(known_[place], known);
}

}  // namespace arraybridge
