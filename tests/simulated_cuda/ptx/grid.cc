// SPDX-License-Identifier: Apache-2.0
// A thread runs until it waits for others, or until its turn ends, so that a thread can also spin until another one
// writes. Lanes of a warp that wait together go on when all lanes of their mask have arrived at the same instruction.
// Threads at a barrier go on when all have arrived. If no thread can go on, the launch fails; hardware would hang.
#include "tests/simulated_cuda/ptx/grid.h"

#include <algorithm>
#include <deque>
#include <map>

namespace arraybridge::simulated::ptx {
namespace {

constexpr uint64_t kTurn = 100'000;            // steps
constexpr uint64_t kStepsMax = 2'000'000'000;  // of a launch
constexpr std::byte kFresh{0xCD};

using Threads = std::vector<Thread*>;

bool Has(const Threads& threads, ThreadState state) {
  return std::any_of(threads.begin(), threads.end(), [&](const Thread* each) { return each->state == state; });
}

class BlockRun {
 public:
  BlockRun(Grid& grid, const Dimensions& index) : block_{.grid = grid, .index = index, .shared = {}} {
    block_.shared.resize(grid.static_shared + grid.dynamic_shared, kFresh);
    const uint32_t count = grid.threads[0] * grid.threads[1] * grid.threads[2];
    for (uint32_t number = 0; number < count; ++number) {
      Thread& made = threads_.emplace_back(block_, number);
      if (number % kWarp == 0) warps_.emplace_back();
      warps_.back().push_back(&made);
      all_.push_back(&made);
    }
  }

  cuda::CUresult Run(std::string* why) {
    while (!std::all_of(all_.begin(), all_.end(), [](const Thread* t) { return t->state == ThreadState::kExited; })) {
      bool moved = false;
      for (const Threads& warp : warps_) {
        moved = RunWarp(warp) || moved;
        if (const cuda::CUresult failed = FailureOf(warp, why)) return failed;
      }
      moved = OpenBarriers() || moved;
      if (!moved) {
        *why = "threads wait for others that do not arrive";
        return cuda::CUDA_ERROR_LAUNCH_TIMEOUT;
      }
      if (block_.grid.steps > kStepsMax) {
        *why = "the launch has run " + std::to_string(kStepsMax) + " instructions and has no end";
        return cuda::CUDA_ERROR_LAUNCH_TIMEOUT;
      }
    }
    return cuda::CUDA_SUCCESS;
  }

 private:
  cuda::CUresult FailureOf(const Threads& warp, std::string* why) const {
    for (const Thread* each : warp) {
      if (each->failed == cuda::CUDA_SUCCESS) continue;
      *why = each->why;
      return each->failed;
    }
    return cuda::CUDA_SUCCESS;
  }

  // True if a lane could go on.
  static bool RunWarp(const Threads& warp) {
    bool moved = false;
    for (Thread* each : warp) {
      if (each->state != ThreadState::kRuns) continue;
      each->Run(kTurn);
      moved = true;
    }
    if (!Has(warp, ThreadState::kWithWarp)) return moved;
    std::map<const Together*, Threads> groups;
    for (Thread* each : warp) {
      if (each->state == ThreadState::kWithWarp) groups[each->together].push_back(each);
    }
    for (const auto& [together, members] : groups) {
      if (!Complete(warp, members)) continue;
      (*together)(members);
      for (Thread* each : members) each->state = ThreadState::kRuns;
      moved = true;
    }
    return moved;
  }

  // True if no lane of the members' masks is missing. A lane that has exited is not waited for.
  static bool Complete(const Threads& warp, const Threads& members) {
    uint32_t expected = 0;
    uint32_t here = 0;
    for (const Thread* each : members) {
      expected |= each->lanes;
      here |= 1U << each->lane();
    }
    if (expected == 0) return !Has(warp, ThreadState::kRuns);
    for (const Thread* each : warp) {
      if (each->state == ThreadState::kExited) expected &= ~(1U << each->lane());
    }
    return (expected & ~here) == 0;
  }

  bool OpenBarriers() {
    bool opened = false;
    for (uint32_t which = 0; which < kBarriers; ++which) opened = OpenBarrier(which) || opened;
    return opened;
  }

  bool OpenBarrier(uint32_t which) {
    Threads waiting;
    uint32_t alive = 0;
    uint32_t expected = 0;
    for (Thread* each : all_) {
      alive += each->state == ThreadState::kExited ? 0 : 1;
      if (each->state != ThreadState::kAtBarrier || each->barrier != which) continue;
      expected = std::max(expected, each->barrier_threads);
      waiting.push_back(each);
    }
    if (expected == 0) expected = alive;
    const auto count = static_cast<uint32_t>(waiting.size());
    if (waiting.empty() || count + block_.arrived[which] < expected) return false;
    block_.arrived[which] = 0;
    uint32_t votes = 0;
    for (const Thread* each : waiting) votes += each->contributes ? 1 : 0;
    for (Thread* each : waiting) {
      each->state = ThreadState::kRuns;
      each->contributes = false;
      const auto after = std::exchange(each->after_barrier, nullptr);
      if (after != nullptr) after(*each, votes, count);
    }
    return true;
  }

  Block block_;
  std::deque<Thread> threads_;
  std::vector<Threads> warps_;
  Threads all_;
};

}  // namespace

cuda::CUresult Run(Grid& grid, std::string* why) {
  Dimensions index{};
  for (index[2] = 0; index[2] < grid.blocks[2]; ++index[2]) {
    for (index[1] = 0; index[1] < grid.blocks[1]; ++index[1]) {
      for (index[0] = 0; index[0] < grid.blocks[0]; ++index[0]) {
        const cuda::CUresult result = BlockRun(grid, index).Run(why);
        if (result != cuda::CUDA_SUCCESS) return result;
      }
    }
  }
  return cuda::CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated::ptx
