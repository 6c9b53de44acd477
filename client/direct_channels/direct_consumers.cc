// SPDX-License-Identifier: Apache-2.0
#include "client/direct_channels/direct_consumers.h"

#include <utility>

namespace arraybridge {

void DirectConsumers::Add(const std::shared_ptr<DirectConsumer>& consumer) {
  const MutexLock lock(mutex_);
  std::erase_if(consumers_, [](const auto& each) { return each.expired(); });
  consumers_.push_back(consumer);
}

std::optional<DirectConsumers::Found> DirectConsumers::FindAndHold(uint64_t arena, uint64_t offset,
                                                                   uint64_t bytes) const {
  // Destroyed outside the lock, if it was the last reference.
  std::vector<std::shared_ptr<DirectConsumer>> looked_at;
  const MutexLock lock(mutex_);
  for (const auto& each : consumers_) {
    auto consumer = each.lock();
    if (consumer == nullptr) continue;
    if (const auto held = consumer->FindAndHold(arena, offset, bytes)) return Found{std::move(consumer), *held};
    looked_at.push_back(std::move(consumer));
  }
  return std::nullopt;
}

}  // namespace arraybridge
