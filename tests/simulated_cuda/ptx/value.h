// SPDX-License-Identifier: Apache-2.0
// Values of registers. A register has 64 bits; a shorter value is in its low bits, and a signed one is extended.
// Half and Brain are the two floating-point types of 16 bits: arithmetic is in float and rounds to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace arraybridge::simulated::ptx {

uint16_t HalfBits(float value);
float FromHalfBits(uint16_t bits);
uint16_t BrainBits(float value);

struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) : bits(HalfBits(value)) {}
  operator float() const { return FromHalfBits(bits); }
};

struct Brain {
  uint16_t bits = 0;
  Brain() = default;
  explicit Brain(float value) : bits(BrainBits(value)) {}
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// Two values in one register.
template <class T>
struct Two {
  T low;
  T high;
};

template <class T>
constexpr bool kIsTwo = false;
template <class T>
constexpr bool kIsTwo<Two<T>> = true;
template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;
template <class T>
constexpr bool kIsReal = std::is_floating_point_v<T> || kIsHalf<T>;

// The type in which arithmetic with T is done.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

// The value in the register's low bits.
template <class T>
T As(uint64_t bits) {
  static_assert(sizeof(T) <= sizeof(bits));
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

template <class T>
uint64_t Bits(T value) {
  if constexpr (std::is_integral_v<T>) return static_cast<uint64_t>(value);
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
  return bits;
}

}  // namespace arraybridge::simulated::ptx
