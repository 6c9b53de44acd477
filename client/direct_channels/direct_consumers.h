// SPDX-License-Identifier: Apache-2.0
// DirectConsumers are the consuming ends of a session, open or ended, whose entries may still be in use. A thread that
// publishes a received share once more finds its entry here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/direct_channels/direct_consumer.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class DirectConsumers {
 public:
  void Add(const std::shared_ptr<DirectConsumer>& consumer) AB_EXCLUDES(mutex_);
  struct Found {
    std::shared_ptr<DirectConsumer> consumer;
    DirectConsumer::Held entry;
  };
  // As DirectConsumer::FindAndHold.
  std::optional<Found> FindAndHold(uint64_t arena, uint64_t offset, uint64_t bytes) const AB_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::vector<std::weak_ptr<DirectConsumer>> consumers_ AB_GUARDED_BY(mutex_);  // ends, leases and forwards own them
};

}  // namespace arraybridge
