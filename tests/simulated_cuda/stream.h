// SPDX-License-Identifier: Apache-2.0
// A Stream is a queue of work that has not run yet. Enqueuing runs nothing; only Run, which every synchronisation
// calls, runs work. So code that reads bytes without waiting for them always sees the old ones.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::simulated {

using Lock = std::unique_lock<std::mutex>;

class Stream;

// A position in a stream's queue: all work that was enqueued before it.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t position = 0;
};

struct Work {
  const char* symbol = "";
  // Called with the process's lock held; may drop the lock while it waits.
  std::function<cuda::CUresult(Lock&)> run;
  // The device ranges that it will access; 0 for none.
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t size = 0;
};

class Stream {
 public:
  // `is_blocking`: ordered against the legacy stream of the same context.
  Stream(const void* of_context, bool is_blocking, bool is_legacy)
      : context(of_context), blocking(is_blocking), legacy(is_legacy) {}

  void Enqueue(Work work, std::vector<Point> after = {});
  uint64_t tail() const { return executed_ + queue_.size(); }
  bool idle() const { return queue_.empty(); }
  // True if queued work accesses a byte in [base, base + size).
  bool Uses(uint64_t base, uint64_t size) const;

  // Runs the queue up to `position`, and before each work item the work that it depends on. Every later call returns
  // the first error too.
  cuda::CUresult Run(Lock& lock, uint64_t position, std::condition_variable& changed);
  // Runs the next work item, if any.
  cuda::CUresult RunOne(Lock& lock, std::condition_variable& changed) { return Run(lock, executed_ + 1, changed); }

  const void* const context;
  const bool blocking;
  const bool legacy;
  bool capturing = false;

 private:
  struct Entry {
    Work work;
    std::vector<Point> after;
  };
  void Fail(cuda::CUresult result);
  cuda::CUresult RunFront(Lock& lock, std::condition_variable& changed);

  std::deque<Entry> queue_;
  uint64_t executed_ = 0;
  cuda::CUresult failed_ = cuda::CUDA_SUCCESS;
  bool running_ = false;
  std::thread::id runner_;
};

}  // namespace arraybridge::simulated
