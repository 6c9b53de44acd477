#include "client/direct_producers.h"

#include <algorithm>
#include <utility>

namespace arraybridge {

void DirectProducers::Add(std::shared_ptr<DirectProducer> direct) {
  const MutexLock lock(mutex_);
  direct_channels_.push_back(std::move(direct));
  any_.store(true, std::memory_order_relaxed);
}

std::vector<uint64_t> DirectProducers::Look() {
  std::vector<uint64_t> finished;
  if (!any_.load(std::memory_order_relaxed)) return finished;
  std::vector<std::shared_ptr<DirectProducer>> dead;  // unmapped outside the lock
  const MutexLock lock(mutex_);
  std::erase_if(direct_channels_, [&](std::shared_ptr<DirectProducer>& direct) {
    if (!direct->Look()) return false;
    finished.push_back(direct->number());
    dead.push_back(std::move(direct));
    return true;
  });
  any_.store(!direct_channels_.empty(), std::memory_order_relaxed);
  return finished;
}

bool DirectProducers::outstanding() const {
  if (!any_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  return std::ranges::any_of(direct_channels_, [](const auto& direct) { return direct->outstanding() > 0; });
}

}  // namespace arraybridge
