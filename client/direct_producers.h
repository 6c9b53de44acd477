// Direct channels are those on which a session sends: who carves looks there first for what has been read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/direct_producer.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class DirectProducers {
 public:
  void Add(std::shared_ptr<DirectProducer> direct) AB_EXCLUDES(mutex_);
  // Carves anew what has been read. The numbers of direct channels of which nothing is left, which the broker may forget.
  std::vector<uint64_t> Look() AB_EXCLUDES(mutex_);
  // Ranges may come back of which no answer tells.
  bool outstanding() const AB_EXCLUDES(mutex_);
  // Shares that were sent, or received, without a call.
  void Count() { shares_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t shares() const { return shares_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> any_{false};  // without it nobody need look
  std::atomic<uint64_t> shares_{0};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<DirectProducer>> direct_channels_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
