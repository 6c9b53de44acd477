// SPDX-License-Identifier: Apache-2.0
// The RestartPolicy says when the keeper starts the next daemon after a death. It is started at once, unless several
// daemons in a row have died soon after their start. Then the keeper waits longer each time, and at last starts none.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace arraybridge::daemon {

class RestartPolicy {
 public:
  using Time = std::chrono::milliseconds;
  static constexpr int kShortLivesAtOnce = 4;  // the fifth death in a row is the first that is followed by a delay
  static constexpr int kShortLivesMax = 20;
  static constexpr int kLongestDelay = 100;  // in units of the first one

  RestartPolicy(Time short_life, Time first_delay) : short_life_(short_life), first_delay_(first_delay) {}

  // The delay before the next start; nullopt: no daemon is to be started until Forgive.
  std::optional<Time> DelayAfter(Time life) {
    if (life >= short_life_) Forgive();
    if (life < short_life_) ++short_lives_;
    if (short_lives_ >= kShortLivesMax) return std::nullopt;
    if (short_lives_ <= kShortLivesAtOnce) return Time(0);
    return first_delay_ * std::min(1 << std::min(short_lives_ - kShortLivesAtOnce - 1, 10), kLongestDelay);
  }
  void Forgive() { short_lives_ = 0; }
  Time short_life() const { return short_life_; }

 private:
  const Time short_life_;
  const Time first_delay_;
  int short_lives_ = 0;
};

}  // namespace arraybridge::daemon
