// SPDX-License-Identifier: Apache-2.0
// The direction in which the processor rounds, for the instructions that name one.
#pragma once

#include <cfenv>
#include <string_view>

namespace arraybridge::simulated::ptx {

// For rn, rz, rm, rp and their forms with an i; to nearest for an empty word.
inline int RoundingNamed(std::string_view name) {
  if (name.starts_with("rz")) return FE_TOWARDZERO;
  if (name.starts_with("rm")) return FE_DOWNWARD;
  return name.starts_with("rp") ? FE_UPWARD : FE_TONEAREST;
}

class Rounding {
 public:
  explicit Rounding(int direction) : before_(std::fegetround()) { std::fesetround(direction); }
  ~Rounding() { std::fesetround(before_); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  const int before_;
};

// The value, which the compiler must take from memory here: it does not know that a direction was set.
template <class T>
T Kept(T value) {
  volatile T kept = value;
  return kept;
}

}  // namespace arraybridge::simulated::ptx
