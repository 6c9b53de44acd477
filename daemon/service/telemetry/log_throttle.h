// A LogThrottle lets so many lines a second into the log and counts the rest: what strangers can cause at will must not
// fill a disk. One for each kind of line.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace arraybridge {

// Used by one thread.
class LogThrottle {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Nothing: drop this line. Else: how many were dropped since the last one that was let through.
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
  TimePoint second_{};  // when the running second began
  uint64_t lines_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace arraybridge
