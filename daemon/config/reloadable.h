// SPDX-License-Identifier: Apache-2.0
// A reload may change a Reloadable value while other threads read it: each read returns the old value or the new one.
// Values of Config that are not Reloadable do not change after the start.
#pragma once

#include <atomic>
#include <type_traits>

namespace arraybridge::daemon {

template <class T>
class Reloadable {
 public:
  Reloadable() = default;
  Reloadable(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): converts like its value
  Reloadable(const Reloadable& other) : value_(other.get()) {}
  Reloadable& operator=(const Reloadable& other) { return *this = other.get(); }
  Reloadable& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  ~Reloadable() = default;

  T get() const { return value_.load(std::memory_order_relaxed); }
  operator T() const { return get(); }  // NOLINT(google-explicit-constructor)
  // Numbers need none: they compare by conversion.
  friend bool operator==(const Reloadable& one, const T& other) requires(!std::is_arithmetic_v<T>) {
    return one.get() == other;
  }

 private:
  std::atomic<T> value_{};
};

template <class T>
inline constexpr bool kIsReloadable = false;
template <class T>
inline constexpr bool kIsReloadable<Reloadable<T>> = true;

}  // namespace arraybridge::daemon
