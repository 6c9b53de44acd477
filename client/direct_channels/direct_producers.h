// SPDX-License-Identifier: Apache-2.0
// DirectProducers are the producing ends of a session. A thread that carves a range polls them first: ranges may have
// come back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/direct_channels/direct_producer.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class DirectProducers {
 public:
  void Add(std::shared_ptr<DirectProducer> producer) AB_EXCLUDES(mutex_);
  // Frees the ranges that consumers do not read any more. Returns the numbers of direct channels that have ended and of
  // which no range is left: the broker may forget them.
  std::vector<uint64_t> Poll() AB_EXCLUDES(mutex_);
  // Ranges may come back without an answer that says so.
  bool outstanding() const AB_EXCLUDES(mutex_);
  // Shares that were sent, or received, without a call.
  void Count() { shares_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t shares() const { return shares_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> any_{false};  // without it there is nothing to poll
  std::atomic<uint64_t> shares_{0};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<DirectProducer>> producers_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
