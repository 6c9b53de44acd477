// SPDX-License-Identifier: Apache-2.0
// Tallies are counts of the doors in addition to Traffic: causes of ended sessions, and refusals by reason.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "proto/boundary/frame.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// kLimit includes sessions that an administrator ended or that lost a right.
enum class EndCause : uint8_t { kClean, kKilled, kProtocol, kLimit, kDrain, kLast = kDrain };

// Thread-safe.
class Tallies {
 public:
  // Counts by label. The labels are our own words, so their number is bounded.
  using Counts = std::map<std::string, uint64_t>;

  void CountEnd(EndCause cause) { ends_[static_cast<size_t>(cause)].fetch_add(1, std::memory_order_relaxed); }
  void CountRefusal(Verb verb, const Status& refusal) AB_EXCLUDES(mutex_);

  // The labels are clean (the client closed its connection), killed (by a signal, as KilledBy tells it),
  // protocol, limit and drain.
  Counts ends() const;
  // The label is the limit if the refusal names one, otherwise its reason: bytes_per_uid, quota_exceeded, channel_full.
  Counts limit_hits() const AB_EXCLUDES(mutex_);
  // The label is the refusal's reason: not_authorized, unknown_session.
  Counts auth_failures() const AB_EXCLUDES(mutex_);
  // The labels are quota, limit, memory and driver.
  Counts allocation_failures() const;

 private:
  enum class Lack : uint8_t { kQuota, kLimit, kMemory, kDriver, kLast = kDriver };
  static Lack LackOf(const Status& refusal);

  std::array<std::atomic<uint64_t>, static_cast<size_t>(EndCause::kLast) + 1> ends_{};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Lack::kLast) + 1> lacks_{};
  mutable Mutex mutex_;
  Counts limit_hits_ AB_GUARDED_BY(mutex_);
  Counts auth_failures_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge::daemon
