#include "client/share_cache.h"

#include <utility>

namespace arraybridge {

std::shared_ptr<const KnownShare> ShareCache::Find(std::string_view description) const {
  const size_t place = PlaceOf(description);
  MutexLock lock(mutex_);
  const auto& known = known_[place];
  return known && known->description == description ? known : nullptr;
}

void ShareCache::Add(std::shared_ptr<const KnownShare> known) {
  if (known->description.size() > kDescriptionBytesMax) return;
  const size_t place = PlaceOf(known->description);
  MutexLock lock(mutex_);
  std::swap(known_[place], known);  // what was there dies outside the lock
}

}  // namespace arraybridge
