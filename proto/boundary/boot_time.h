// SPDX-License-Identifier: Apache-2.0
// The clock by which the ends of channels tell when a share was sent: the same for all processes of a host, also across
// its sleep.
#pragma once

#include <cstdint>
#include <ctime>

namespace arraybridge {

// Nanoseconds of CLOCK_BOOTTIME.
inline uint64_t BootTime() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace arraybridge
