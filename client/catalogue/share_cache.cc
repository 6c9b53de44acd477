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
  for (const size_t places : {kIdsMax, kLongMax})
    if (const auto& known = by_id_[share % places]; known && known->share.id == share) return known;
  return nullptr;
}

void ShareCache::Add(std::shared_ptr<const KnownShare> known) {
  const size_t bytes = known->description.size(), places = bytes > kShortBytesMax ? kLongMax : kIdsMax;
  if (bytes > kDescriptionBytesMax) return;
  std::shared_ptr<const KnownShare> by_id = known;
  const size_t place = PlaceOf(known->description);
  MutexLock lock(mutex_);
  std::swap(by_id_[known->share.id % places], by_id);  // the displaced entry is destroyed outside the lock
  if (bytes != 0) std::swap(known_[place], known);
}

}  // namespace arraybridge
