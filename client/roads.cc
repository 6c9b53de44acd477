#include "client/roads.h"

#include <algorithm>
#include <utility>

namespace arraybridge {

void Roads::Add(std::shared_ptr<SentRoad> road) {
  const MutexLock lock(mutex_);
  roads_.push_back(std::move(road));
  any_.store(true, std::memory_order_relaxed);
}

std::vector<uint64_t> Roads::Look() {
  std::vector<uint64_t> finished;
  if (!any_.load(std::memory_order_relaxed)) return finished;
  std::vector<std::shared_ptr<SentRoad>> dead;  // unmapped outside the lock
  const MutexLock lock(mutex_);
  std::erase_if(roads_, [&](std::shared_ptr<SentRoad>& road) {
    if (!road->Look()) return false;
    finished.push_back(road->number());
    dead.push_back(std::move(road));
    return true;
  });
  any_.store(!roads_.empty(), std::memory_order_relaxed);
  return finished;
}

bool Roads::outstanding() const {
  if (!any_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  return std::ranges::any_of(roads_, [](const auto& road) { return road->outstanding() > 0; });
}

}  // namespace arraybridge
