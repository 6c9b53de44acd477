// When not to spin. A side that waits by yielding its processor waits, where other threads want that processor, until
// each of them has had its time slice: milliseconds, while a sleeping thread is woken at once. So a side that waited
// long twice, with few short waits between, backs off: it sleeps at once for a number of turns, twice as many each
// time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace arraybridge {

// Thread-safe. Of turns of several threads at once some may not count.
class SpinBackoff {
 public:
  static constexpr std::chrono::microseconds kShort{500};  // an answer takes less
  // Short waits between two long ones. A thread that runs only on an idle processor (SCHED_IDLE) costs a long wait
  // after more of them, and is no reason to back off.
  static constexpr uint32_t kFew = 256;
  static constexpr uint32_t kTurnsMin = 64;
  static constexpr uint32_t kTurnsMax = 16'384;

  bool backed_off() const { return Get(turns_) > 0; }
  // A turn begins. True: it is one without spinning.
  bool SkipTurn() {
    const uint32_t turns = Get(turns_);
    if (turns > 0) turns_.store(turns - 1, std::memory_order_relaxed);
    return turns > 0;
  }
  // How long a turn has waited; not the time that the other side worked.
  void Waited(std::chrono::steady_clock::duration time) { time <= kShort ? NoteShort() : NoteLong(); }
  void NoteShort() {
    const uint32_t shorts = std::min(Get(short_) + 1, kCalm);
    short_.store(shorts, std::memory_order_relaxed);
    if (shorts == kCalm) next_turns_.store(0, std::memory_order_relaxed);
  }
  void NoteLong() {
    if (short_.exchange(0, std::memory_order_relaxed) >= kFew) return;
    const uint32_t turns = std::clamp(Get(next_turns_) * 2, kTurnsMin, kTurnsMax);
    next_turns_.store(turns, std::memory_order_relaxed);
    turns_.store(turns, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kCalm = 64 * kFew;  // short waits, after which the next back-off is a short one

  static uint32_t Get(const std::atomic<uint32_t>& word) { return word.load(std::memory_order_relaxed); }

  std::atomic<uint32_t> turns_{0};
  std::atomic<uint32_t> next_turns_{0};
  std::atomic<uint32_t> short_{kFew};  // short waits since the last long one
};

}  // namespace arraybridge
