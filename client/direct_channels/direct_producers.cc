// SPDX-License-Identifier: Apache-2.0
#include "client/direct_channels/direct_producers.h"

#include <algorithm>
#include <utility>

namespace arraybridge {

void DirectProducers::Add(std::shared_ptr<DirectProducer> producer) {
  const MutexLock lock(mutex_);
  producers_.push_back(std::move(producer));
  any_.store(true, std::memory_order_relaxed);
}

std::vector<uint64_t> DirectProducers::Poll() {
  std::vector<uint64_t> finished;
  if (!any_.load(std::memory_order_relaxed)) return finished;
  std::vector<std::shared_ptr<DirectProducer>> dead;  // unmapped outside the lock
  const MutexLock lock(mutex_);
  std::erase_if(producers_, [&](std::shared_ptr<DirectProducer>& producer) {
    if (!producer->Poll()) return false;
    finished.push_back(producer->number());
    dead.push_back(std::move(producer));
    return true;
  });
  any_.store(!producers_.empty(), std::memory_order_relaxed);
  return finished;
}

bool DirectProducers::outstanding() const {
  if (!any_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  return std::ranges::any_of(producers_, [](const auto& producer) { return producer->outstanding() > 0; });
}

}  // namespace arraybridge
