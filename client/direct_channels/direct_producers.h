// SPDX-License-Identifier: Apache-2.0
// DirectProducers are the producing ends of a session. A thread that carves a range polls them first: ranges may have
// come back.
#pragma once

#include <atomic>
#include <chrono>
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
  // An entry of another direct channel was forwarded, which holds memory of another process. True: the first one for a
  // while.
  bool NoteForward(std::chrono::steady_clock::time_point now) {
    const auto last = last_forward_.exchange(now.time_since_epoch().count(), std::memory_order_relaxed);
    return now - TimeOf(last) > kLately;
  }
  bool forwards_lately(std::chrono::steady_clock::time_point now) const {
    return now - TimeOf(last_forward_.load(std::memory_order_relaxed)) < 2 * kLately;
  }
  // Some may be forwarded now.
  bool forwards() const { return last_forward_.load(std::memory_order_relaxed) != 0 && outstanding(); }
  // Shares that were sent, or received, without a call.
  void Count() { shares_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t shares() const { return shares_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> any_{false};  // without it there is nothing to poll
  static constexpr std::chrono::seconds kLately{1};
  static std::chrono::steady_clock::time_point TimeOf(int64_t count) {
    return std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(count));
  }

  std::atomic<int64_t> last_forward_{0};
  std::atomic<uint64_t> shares_{0};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<DirectProducer>> producers_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
