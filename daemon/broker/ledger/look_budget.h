// SPDX-License-Identifier: Apache-2.0
// A LookBudget bounds the time that the broker spends on looks through the hazard pages of one user's namespaces. It is
// a small part of all time: no content of these pages makes another user wait. Beyond it, the look is made later.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace arraybridge::daemon {

// Not thread-safe. Costs are estimates in nanoseconds, because a clock would also count time in which the thread did
// not run.
class LookBudget {
 public:
  static constexpr int64_t kMostNs = 400'000;  // spent at once, at most
  static constexpr int64_t kPart = 10;         // the budget is the kPart-th part of the time

  // Reads the clock only if the budget is spent.
  bool has_some() {
    if (spare_ns_ <= 0) Refill(std::chrono::steady_clock::now());
    return spare_ns_ > 0;
  }
  // May exceed the budget; later looks then wait until it has recovered.
  void Spend(uint64_t cost_ns) { spare_ns_ -= static_cast<int64_t>(cost_ns); }
  bool is_full() {
    Refill(std::chrono::steady_clock::now());
    return spare_ns_ == kMostNs;
  }

 private:
  void Refill(std::chrono::steady_clock::time_point now) {
    const int64_t gained = std::chrono::nanoseconds(now - refilled_).count() / kPart;
    spare_ns_ = std::min(kMostNs, spare_ns_ + gained);
    refilled_ = now;
  }

  int64_t spare_ns_ = kMostNs;
  std::chrono::steady_clock::time_point refilled_ = std::chrono::steady_clock::now();
};

}  // namespace arraybridge::daemon
