// SPDX-License-Identifier: Apache-2.0
#include "client/direct_channels/direct_consumers.h"

#include <utility>

namespace arraybridge {

void DirectConsumers::Add(const std::shared_ptr<DirectConsumer>& consumer) {
  const MutexLock lock(mutex_);
  consumers_.push_back({consumer->number(), consumer});
}

std::optional<DirectConsumers::Found> DirectConsumers::FindAndHold(uint64_t arena, uint64_t offset,
                                                                   uint64_t bytes) const {
  // Destroyed outside the lock, if it was the last reference.
  std::vector<std::shared_ptr<DirectConsumer>> looked_at;
  std::optional<Found> found;
  const MutexLock lock(mutex_);
  for (const Entry& each : consumers_) {
    looked_at.push_back(each.consumer.lock());
    const auto& consumer = looked_at.back();
    const auto held = consumer == nullptr ? std::nullopt : consumer->FindAndHold(arena, offset, bytes);
    if (held && found) {
      found->consumer->Leave(found->entry.bit);
      consumer->Leave(held->bit);
      return std::nullopt;
    }
    if (held) found = Found{consumer, *held};
  }
  return found;
}

std::vector<uint64_t> DirectConsumers::TakeFinished() {
  std::vector<uint64_t> finished;
  std::vector<std::shared_ptr<DirectConsumer>> looked_at;
  const MutexLock lock(mutex_);
  std::erase_if(consumers_, [&](const Entry& each) {
    auto consumer = each.consumer.lock();
    if (consumer != nullptr && !consumer->finished()) return looked_at.push_back(std::move(consumer)), false;
    finished.push_back(each.number);
    if (consumer != nullptr) looked_at.push_back(std::move(consumer));
    return true;
  });
  return finished;
}

}  // namespace arraybridge
