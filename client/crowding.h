// When not to yield to the broker. Where others want this processor, or the broker's, that is to wait until each of
// them has had its slice, milliseconds, while who sleeps is woken at once; and a broker that looks for who asks rarely
// looks in vain. So who was wrong twice, with few good turns between, rests, each time twice as long.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace arraybridge {

// Thread-safe. Of turns of several threads at once some may not count.
class Crowding {
 public:
  static constexpr std::chrono::microseconds kShort{500};  // an answer takes less
  // Good turns. What runs only if nobody else does (SCHED_IDLE) comes after more of them, and is no crowd.
  static constexpr uint32_t kFew = 256;
  static constexpr uint32_t kRestMin = 64;
  static constexpr uint32_t kRestMax = 16'384;

  bool rests() const { return Get(rest_) > 0; }
  // One turn less to rest. False: it rests no more.
  bool Rest() {
    const uint32_t rest = Get(rest_);
    if (rest > 0) rest_.store(rest - 1, std::memory_order_relaxed);
    return rest > 0;
  }
  // How long it has waited. Not what the one that it waited for took for something else.
  void Waited(std::chrono::steady_clock::duration time) { time <= kShort ? NoteGood() : NoteBad(); }
  void NoteGood() {
    const uint32_t good = std::min(Get(good_) + 1, kCalm);
    good_.store(good, std::memory_order_relaxed);
    if (good == kCalm) next_rest_.store(0, std::memory_order_relaxed);
  }
  void NoteBad() {
    if (good_.exchange(0, std::memory_order_relaxed) >= kFew) return;
    const uint32_t rest = std::clamp(Get(next_rest_) * 2, kRestMin, kRestMax);
    next_rest_.store(rest, std::memory_order_relaxed);
    rest_.store(rest, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kCalm = 64 * kFew;  // good turns, after which it is crowded no more

  static uint32_t Get(const std::atomic<uint32_t>& word) { return word.load(std::memory_order_relaxed); }

  std::atomic<uint32_t> rest_{0};
  std::atomic<uint32_t> next_rest_{0};
  std::atomic<uint32_t> good_{kFew};  // turns since the last bad one
};

}  // namespace arraybridge
