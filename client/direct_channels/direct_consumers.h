// SPDX-License-Identifier: Apache-2.0
// DirectConsumers are the consuming ends of a session, open or ended, whose entries may still be in use: a thread that
// publishes what it received once more finds the entry here.
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
  // As DirectConsumer::FindAndHold. Nothing, too, if the arrays of two direct channels have these bytes: a relay may
  // name any range that it reads, so that nobody knows which of the two entries keeps them.
  std::optional<Found> FindAndHold(uint64_t arena, uint64_t offset, uint64_t bytes) const AB_EXCLUDES(mutex_);
  bool empty() const AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return consumers_.empty();
  }
  // The numbers of direct channels that have ended and of which this process has no entry any more, each once.
  std::vector<uint64_t> TakeFinished() AB_EXCLUDES(mutex_);

 private:
  struct Entry {
    uint64_t number = 0;
    std::weak_ptr<DirectConsumer> consumer;  // ends, leases and forwards own it
  };
  mutable Mutex mutex_;
  std::vector<Entry> consumers_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
