// The HeapTrimmer gives freed heap memory back to the system. The allocator keeps what was freed, so that a burst of
// requests would stay in the daemon's resident memory long after the sessions that caused it have ended.
#pragma once

#include <atomic>

#include "daemon/service/reclaim/worker.h"

namespace arraybridge {

// Thread-safe.
class HeapTrimmer {
 public:
  // Its work runs on `worker`, which outlives it or is stopped before it.
  explicit HeapTrimmer(Worker& worker) : worker_(worker) {}

  // Memory was freed, or soon will be: the heap is looked at after kPause. Calls within the pause count as one. Cheap.
  void Freed();

 private:
  static void Trim();

  Worker& worker_;
  std::atomic<bool> posted_{false};
};

}  // namespace arraybridge
