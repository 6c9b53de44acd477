// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/stream.h"

#include <algorithm>

#include "proto/boundary/cuda/driver.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {

using cuda::CUresult;

void Stream::Enqueue(Work work, std::vector<Point> after) {
  if (failed_ != cuda::CUDA_SUCCESS) return;
  queue_.push_back({std::move(work), std::move(after)});
}

bool Stream::Uses(uint64_t base, uint64_t size) const {
  const auto touches = [&](uint64_t start, uint64_t bytes) {
    return start != 0 && start < base + size && base < start + bytes;
  };
  return std::any_of(queue_.begin(), queue_.end(), [&](const Entry& entry) {
    return touches(entry.work.to, entry.work.size) || touches(entry.work.from, entry.work.size);
  });
}

CUresult Stream::RunFront(Lock& lock, std::condition_variable& changed) {
  const Entry entry = queue_.front();
  for (const Point& point : entry.after) {
    const CUresult result = point.stream->Run(lock, point.position, changed);
    if (result != cuda::CUDA_SUCCESS) return result;
  }
  return entry.work.run(lock);
}

CUresult Stream::Run(Lock& lock, uint64_t position, std::condition_variable& changed) {
  CUresult& sticky = Process::Get().sticky;
  position = std::min(position, tail());
  while (executed_ < position) {
    if (running_) {
      if (runner_ == std::this_thread::get_id()) Violation("stream", "waits for itself");
      changed.wait(lock);
      continue;
    }
    running_ = true;
    runner_ = std::this_thread::get_id();
    const CUresult result = RunFront(lock, changed);
    running_ = false;
    ++executed_;
    queue_.pop_front();
    if (result != cuda::CUDA_SUCCESS) Fail(result);
    changed.notify_all();
    if (sticky != cuda::CUDA_SUCCESS) return sticky;
  }
  return failed_;
}

// Work after failed work is not run.
void Stream::Fail(CUresult result) {
  if (cuda::IsSticky(result)) Process::Get().sticky = result;
  failed_ = result;
  executed_ += queue_.size();
  queue_.clear();
}

}  // namespace arraybridge::simulated
