// A reload may change a Live value while other threads read it: each read returns the old value or the new one. Values
// of Config that are not Live do not change after the start.
#pragma once

#include <atomic>
#include <type_traits>

namespace arraybridge {

template <class T>
class Live {
 public:
  Live() = default;
  Live(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): converts like its value
  Live(const Live& other) : value_(other.get()) {}
  Live& operator=(const Live& other) { return *this = other.get(); }
  Live& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  ~Live() = default;

  T get() const { return value_.load(std::memory_order_relaxed); }
  operator T() const { return get(); }  // NOLINT(google-explicit-constructor)
  // Numbers need none: they compare by conversion.
  friend bool operator==(const Live& one, const T& other) requires(!std::is_arithmetic_v<T>) {
    return one.get() == other;
  }

 private:
  std::atomic<T> value_{};
};

template <class T>
inline constexpr bool kIsLive = false;
template <class T>
inline constexpr bool kIsLive<Live<T>> = true;

}  // namespace arraybridge
