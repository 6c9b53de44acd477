// SPDX-License-Identifier: Apache-2.0
// Times of CLOCK_MONOTONIC as the journal keeps them: in nanoseconds; 0: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace arraybridge::daemon {

inline int64_t NsOf(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
inline int64_t NsOf(const std::optional<std::chrono::steady_clock::time_point>& time) { return time ? NsOf(*time) : 0; }

inline std::chrono::steady_clock::time_point TimeOf(int64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}
inline std::optional<std::chrono::steady_clock::time_point> TimeIfAny(int64_t ns) {
  return ns == 0 ? std::nullopt : std::optional(TimeOf(ns));
}

}  // namespace arraybridge::daemon
