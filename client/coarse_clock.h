// Steady time as of the last tick of the kernel's clock: a tenth of the price of steady_clock::now(), which is more
// than a lookup costs. For what is compared with whole tenths of a second.
#pragma once

#include <time.h>

#include <chrono>

namespace arraybridge {

// How far behind it may be (CONFIG_HZ=100).
constexpr std::chrono::milliseconds kCoarseTick{10};

inline std::chrono::steady_clock::time_point CoarseNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace arraybridge
