// The HeapTrimmer gives freed heap memory back to the system. The allocator keeps what was freed, so that a burst of
// requests would stay in the daemon's resident memory long after the sessions that caused it have ended.
#pragma once

#include <atomic>

#include "daemon/service/worker.h"

namespace arraybridge {

// Thread-safe.
class HeapTrimmer {
 public:
  // Its work runs on `worker`, which outlives it or is stopped before it.
  explicit HeapTrimmer(Worker& worker) : worker_(worker) {}

  // Something was freed, or soon will be: looks after kPause. Many calls within it are one.
  void Freed();

 private:
  static void Trim();

  Worker& worker_;
  std::atomic<bool> posted_{false};
};

}  // namespace arraybridge
