// To look and yield, instead of sleeping: what a pause of the processor is, and when yielding is a bad idea.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

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
// is woken at once. So who has waited for so long twice, with few short waits between, rests from it, each time twice
// as long. REQUIRES: Note by one thread at a time.
class Crowding {
 public:
  static constexpr std::chrono::microseconds kShort{500};  // an answer, or a client's turn, takes less
  static constexpr uint32_t kFew = 1024;                   // together they take less than a long one
  static constexpr uint32_t kRestMin = 64;
  static constexpr uint32_t kRestMax = 1024;  // who was only busy itself is back soon

  // Thread-safe. Asked each time that somebody might yield; false: not now.
  bool MayYield() {
    const uint32_t rest = rest_.load(std::memory_order_relaxed);
    if (rest == 0) return true;
    rest_.store(rest - 1, std::memory_order_relaxed);
    return false;
  }
  // Thread-safe.
  bool rests() const { return rest_.load(std::memory_order_relaxed) > 0; }
  // How long it has waited. Not what the one that it waited for took for something else.
  void Note(std::chrono::steady_clock::duration waited) {
    if (waited <= kShort) {
      if (++short_ == kCalm) next_rest_ = 0;
      return;
    }
    if (std::exchange(short_, 0) >= kFew) return;
    next_rest_ = std::clamp(next_rest_ * 2, kRestMin, kRestMax);
    rest_.store(next_rest_, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kCalm = 16 * kFew;  // short waits, after which it is crowded no more

  std::atomic<uint32_t> rest_{0};
  uint32_t next_rest_ = 0;
  uint64_t short_ = kFew;  // since the last long one
};

}  // namespace arraybridge
