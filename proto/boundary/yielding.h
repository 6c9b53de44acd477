// To look and yield, instead of sleeping: what a pause of the processor is, and when yielding is a bad idea.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace arraybridge {

// A few tens of cycles, in which the other thread of this core has it to itself.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Where others want this processor, to yield is to wait until each of them has had its slice, milliseconds; who sleeps
// is woken at once. So who has yielded for that long twice in a row rests from it, each time twice as long.
// REQUIRES: Note by one thread at a time.
class Crowding {
 public:
  static constexpr uint32_t kRestMin = 64;
  static constexpr uint32_t kRestMax = 65'536;

  // Thread-safe. Asked each time that somebody might yield; false: not now.
  bool MayYield() {
    const uint32_t rest = rest_.load(std::memory_order_relaxed);
    if (rest == 0) return true;
    rest_.store(rest - 1, std::memory_order_relaxed);
    return false;
  }
  // Thread-safe.
  bool rests() const { return rest_.load(std::memory_order_relaxed) > 0; }
  void Note(bool slow) {
    if (!slow) {
      slow_in_a_row_ = 0;
      if (++fast_in_a_row_ == kFastInARow) next_rest_ = 0;
      return;
    }
    fast_in_a_row_ = 0;
    if (++slow_in_a_row_ < kSlowInARow) return;
    next_rest_ = std::clamp(next_rest_ * 2, kRestMin, kRestMax);
    rest_.store(next_rest_, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kSlowInARow = 2;
  static constexpr uint32_t kFastInARow = 64;  // then it is not crowded any more

  std::atomic<uint32_t> rest_{0};
  uint32_t next_rest_ = 0;
  uint32_t slow_in_a_row_ = 0;
  uint32_t fast_in_a_row_ = 0;
};

}  // namespace arraybridge
