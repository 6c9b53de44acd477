// SPDX-License-Identifier: Apache-2.0
// A LogThrottle admits a limited number of lines per second and counts the others, so that lines that any client can
// cause cannot fill a disk. Each kind of line has its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace arraybridge::daemon {

// Used by one thread.
class LogThrottle {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Returns nullopt if the line must be dropped; otherwise the number of lines dropped since the last admitted one.
  std::optional<uint64_t> Admit(TimePoint now, uint64_t lines_per_second) {
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (lines_ >= lines_per_second) {
      ++dropped_;
      return std::nullopt;
    }
    ++lines_;
    const uint64_t dropped = dropped_;
    dropped_ = 0;
    return dropped;
  }

 private:
  TimePoint second_{};  // the start of the current second
  uint64_t lines_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace arraybridge::daemon
