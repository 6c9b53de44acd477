// SPDX-License-Identifier: Apache-2.0
// A Suspicion begins with a notice that an end of a channel is lost, and lasts until the peer that is lost has been
// found. A notice names a process, of which several peers may live, and the other ends of the lost process may close a
// moment later. So peers are examined until one is found, for a while at most: a peer that said goodbye is not there
// any more.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace arraybridge::services {

// Used by one thread at a time.
class Suspicion {
 public:
  static constexpr std::chrono::milliseconds kPause{20};  // between two examinations

  // A notice has come.
  void Arise() {
    ++lost_;
    until_ = std::chrono::steady_clock::now() + kLongest;
  }
  // A lost peer has been found.
  void Confirm() { lost_ = lost_ == 0 ? 0 : lost_ - 1; }
  // True: peers are to be examined now.
  bool IsOpen() {
    if (lost_ > 0 && std::chrono::steady_clock::now() >= until_) lost_ = 0;
    return lost_ > 0;
  }

 private:
  static constexpr std::chrono::seconds kLongest{10};
  uint64_t lost_ = 0;  // notices without a peer
  std::chrono::steady_clock::time_point until_;
};

}  // namespace arraybridge::services
