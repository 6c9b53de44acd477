// SPDX-License-Identifier: Apache-2.0
// Steady time as of the last tick of the kernel's clock. It costs a tenth of steady_clock::now(), which costs more than
// a lookup. For comparisons with multiples of a tenth of a second.
#pragma once

#include <time.h>

#include <chrono>

namespace arraybridge {

// The most by which it is late (CONFIG_HZ=100).
constexpr std::chrono::milliseconds kCoarseTick{10};

inline std::chrono::steady_clock::time_point CoarseNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace arraybridge
