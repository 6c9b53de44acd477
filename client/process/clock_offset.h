// SPDX-License-Identifier: Apache-2.0
// A ClockOffset estimates how far the broker's clock is ahead of this process's clock. The offset is zero unless the
// broker runs in another time namespace.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace arraybridge {

// Milliseconds of CLOCK_MONOTONIC. Not thread-safe.
class ClockOffset {
 public:
  // The estimate is at most this much too small.
  static constexpr int64_t kCloseMs = 20;

  // Records a reading: the broker's clock, and this process's clock before the request and after the answer. This
  // process may have been stopped in between; such a reading narrows the estimate little.
  void Note(int64_t requested_ms, int64_t broker_ms, int64_t answered_ms) {
    least_ = std::max(least_, broker_ms - answered_ms);
    most_ = std::min(most_, broker_ms - requested_ms);
  }
  bool is_close() const { return least_ > most_ - kCloseMs; }
  // Returns nothing if the offset is unknown. Errs on the small side: a request that is refused too early is only sent
  // again. REQUIRES: a reading.
  std::optional<std::chrono::milliseconds> ahead() const {
    if (least_ <= 0 && 0 <= most_) return std::chrono::milliseconds(0);
    if (!is_close()) return std::nullopt;
    return std::chrono::milliseconds(least_);
  }

 private:
  static constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 2;

  int64_t least_ = -kFar;
  int64_t most_ = kFar;
};

}  // namespace arraybridge
