// SPDX-License-Identifier: Apache-2.0
// The HeapTrimmer returns freed heap memory to the system. The allocator keeps freed memory, so without it a burst of
// requests would remain in the daemon's resident memory long after its sessions have ended.
#pragma once

#include <atomic>

#include "daemon/service/reclaim/worker.h"

namespace arraybridge::daemon {

// Thread-safe.
class HeapTrimmer {
 public:
  // The trimming runs on `worker`, which must outlive this object or be stopped before it is destroyed.
  explicit HeapTrimmer(Worker& worker) : worker_(worker) {}

  // Memory was freed or soon will be: checks the heap after kPause. Calls during the pause count as one. Cheap.
  void Freed();

 private:
  static void Trim();

  Worker& worker_;
  std::atomic<bool> posted_{false};
};

}  // namespace arraybridge::daemon
