// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/value.h"

namespace arraybridge::simulated::ptx {

// A half has 1 sign, 5 exponent and 10 fraction bits.
uint16_t HalfBits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7FFF;
  if (size >= 65520.0F) return sign | 0x7C00;
  // The distance between halfs of this size; scaling by a power of two is exact, and nearbyint rounds to even.
  const int exponent = size < 0x1p-14F ? -14 : std::ilogb(size);
  const float units = std::nearbyint(std::ldexp(size, 10 - exponent));
  const auto fraction = static_cast<uint32_t>(units);
  const uint32_t biased = exponent + 15;
  if (fraction < 1024) return static_cast<uint16_t>(sign | fraction);
  return static_cast<uint16_t>(sign | ((biased << 10) + (fraction - 1024)));
}

float FromHalfBits(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  float size = 0;
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                         : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

// A brain float is the upper half of a float.
uint16_t BrainBits(float value) {
  if (std::isnan(value)) return 0x7FFF;
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace arraybridge::simulated::ptx
