// SPDX-License-Identifier: Apache-2.0
// A SpinBackoff decides when not to spin. If other threads want the processor, a thread that yields it waits until each
// of them has used its time slice, which takes milliseconds; a sleeping thread is woken at once. So after two long
// waits with few short waits between them, a side backs off: it sleeps at once for a number of turns, twice as many
// each time, until as many short waits in a row, and at least 256, have followed a back-off.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace arraybridge {

// Thread-safe. Some of several simultaneous turns may not be counted.
class SpinBackoff {
 public:
  static constexpr std::chrono::microseconds kShort{500};  // an answer takes less time
  // The number of short waits between two long ones. A thread that runs only on an idle processor (SCHED_IDLE) causes a
  // long wait less often than that, and is not a reason to back off.
  static constexpr uint32_t kFew = 256;
  static constexpr uint32_t kTurnsMin = 64;
  static constexpr uint32_t kTurnsMax = 16'384;

  bool backed_off() const { return Get(turns_) > 0; }
  // Starts a turn. True: this turn must not spin.
  bool SkipTurn() {
    const uint32_t turns = Get(turns_);
    if (turns > 0) turns_.store(turns - 1, std::memory_order_relaxed);
    return turns > 0;
  }
  // Records how long a turn has waited, without the time in which the other side worked.
  void Waited(std::chrono::steady_clock::duration time) { time <= kShort ? NoteShort() : NoteLong(); }
  void NoteShort() {
    const uint32_t shorts = std::min(Get(short_) + 1, kTurnsMax);
    short_.store(shorts, std::memory_order_relaxed);
    if (shorts >= std::max(kFew, Get(next_turns_))) next_turns_.store(0, std::memory_order_relaxed);
  }
  void NoteLong() {
    if (short_.exchange(0, std::memory_order_relaxed) >= kFew) return;
    const uint32_t turns = std::clamp(Get(next_turns_) * 2, kTurnsMin, kTurnsMax);
    next_turns_.store(turns, std::memory_order_relaxed);
    turns_.store(turns, std::memory_order_relaxed);
  }

 private:
  static uint32_t Get(const std::atomic<uint32_t>& word) { return word.load(std::memory_order_relaxed); }

  std::atomic<uint32_t> turns_{0};
  std::atomic<uint32_t> next_turns_{0};
  std::atomic<uint32_t> short_{kFew};  // short waits since the last long one
};

}  // namespace arraybridge
