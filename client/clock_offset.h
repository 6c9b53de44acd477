// A ClockOffset is by how much the broker's clock is ahead of this process's, as far as readings of it tell: nothing,
// but for a broker in another time namespace.
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
  // The most by which the offset may be too small.
  static constexpr int64_t kCloseMs = 20;

  // The broker's clock, and this process's before it was asked for that and after it had heard the answer. This process
  // may have been stopped between the two: such a reading tells little.
  void Note(int64_t asked_ms, int64_t broker_ms, int64_t answered_ms) {
    least_ = std::max(least_, broker_ms - answered_ms);
    most_ = std::min(most_, broker_ms - asked_ms);
  }
  bool is_close() const { return least_ > most_ - kCloseMs; }
  // Nothing: it is unknown. REQUIRES: a reading. Rather too small than too large: a request that is refused too early
  // is only asked again.
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
