// Tallies are what the doors count beside their Traffic: how sessions ended, and what refused whom.
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

namespace arraybridge {

// kLimit: also whom an administrator ended, and who lost a right.
enum class EndCause : uint8_t { kClean, kKilled, kProtocol, kLimit, kDrain, kLast = kDrain };

// Thread-safe.
class Tallies {
 public:
  // By label. Labels are words of ours, so there are only so many.
  using Counts = std::map<std::string, uint64_t>;

  void CountEnd(EndCause cause) { ends_[static_cast<size_t>(cause)].fetch_add(1, std::memory_order_relaxed); }
  void CountRefusal(Verb verb, const Status& refusal) AB_EXCLUDES(mutex_);

  // clean (its door was closed), killed, protocol, limit, drain.
  Counts ends() const;
  // The limit where the refusal names it, else what it says: bytes_per_uid, quota_exceeded, channel_full.
  Counts limit_hits() const AB_EXCLUDES(mutex_);
  // What the refusal says: not_authorized, unknown_session.
  Counts auth_failures() const AB_EXCLUDES(mutex_);
  // quota, limit, memory or driver.
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

}  // namespace arraybridge
