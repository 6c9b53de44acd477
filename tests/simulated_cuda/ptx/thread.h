// SPDX-License-Identifier: Apache-2.0
// A Thread runs the steps of a kernel until it exits, fails, or waits for others. A Block is what its threads share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"
#include "tests/simulated_cuda/ptx/program.h"

namespace arraybridge::simulated::ptx {

class Thread;
struct Code;

using Dimensions = std::array<uint32_t, 3>;

// Device memory as a kernel sees it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Null if the kernel may not access these bytes.
  virtual std::byte* Bytes(uint64_t address, uint64_t bytes, bool write) = 0;
};

// One launch of a kernel.
struct Grid {
  const Code* code = nullptr;
  Dimensions blocks{};
  Dimensions threads{};
  std::vector<std::byte> parameters;
  uint64_t static_shared = 0;
  uint64_t dynamic_shared = 0;
  DeviceMemory* memory = nullptr;
  uint64_t steps = 0;  // that all threads have run
  uint64_t number = 0;
};

inline constexpr uint32_t kBarriers = 16;

struct Block {
  Grid& grid;
  Dimensions index{};
  std::vector<std::byte> shared;
  std::array<uint32_t, kBarriers> arrived{};  // threads that arrived at a barrier and went on
};

// What threads of one warp do together, after all of them have arrived. Only the threads that take part are in the
// list.
using Together = std::function<void(const std::vector<Thread*>&)>;

struct Step {
  std::function<void(Thread&)> run;
  bool guarded = false;
  bool guard_negated = false;
  uint32_t guard = 0;
  int line = 0;
};

// A function that was decoded.
struct Code {
  const Function* function = nullptr;
  std::vector<Step> steps;
  std::string error;  // an unknown opcode, for example; empty if there is none
};

// A value that a call copies between the caller's and the callee's registers or parameter spaces.
struct Passed {
  bool from_register = false;
  bool to_register = false;
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t bytes = 0;
};

struct Frame {
  const Code* code = nullptr;
  size_t next = 0;  // step
  std::vector<uint64_t> registers;
  std::vector<std::byte> params;
  uint64_t local_base = 0;
  const std::vector<Passed>* results = nullptr;  // to copy to the caller at the end
};

enum class ThreadState : uint8_t { kRuns, kAtBarrier, kWithWarp, kExited };

// The parts of the generic address space that are not device memory. No real address begins like this.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 56;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << 56;
inline constexpr uint64_t kParamWindow = uint64_t{3} << 56;
inline constexpr uint64_t kWindowMask = uint64_t{0xFF} << 56;
uint64_t WindowOf(Space space);

inline constexpr uint32_t kWarp = 32;

class Thread {
 public:
  Thread(Block& of, uint32_t number);

  // Runs until the thread has to wait or ends, but at most so many steps.
  void Run(uint64_t steps_max);

  uint64_t Get(uint32_t at) const { return frame().registers[at]; }
  void Put(uint32_t at, uint64_t value) { frames_.back().registers[at] = value; }
  Frame& frame() { return frames_.back(); }
  const Frame& frame() const { return frames_.back(); }
  void Jump(size_t step) { frames_.back().next = step; }
  void Call(const Code& code, const std::vector<Passed>& arguments, const std::vector<Passed>& results);
  void Return();
  void Exit() { state = ThreadState::kExited; }
  // `threads`: how many have to arrive; 0 for all of the block.
  void WaitAtBarrier(uint32_t which, uint32_t threads);
  void ArriveAtBarrier(uint32_t which);

  // The bytes at an address of a space; null, and the thread has failed, if it may not access them.
  std::byte* Memory(Space space, uint64_t address, uint64_t bytes, bool write);
  // Ends the launch with this error.
  void Fail(cuda::CUresult result, const std::string& why);

  uint32_t lane() const { return number % kWarp; }

  Block& block;
  const uint32_t number;  // in its block
  const Dimensions index;

  ThreadState state = ThreadState::kRuns;
  // At a barrier: which, of how many threads (0: all), and what it contributes and gets.
  uint32_t barrier = 0;
  uint32_t barrier_threads = 0;
  bool contributes = false;
  std::function<void(Thread&, uint32_t votes, uint32_t threads)> after_barrier;
  // With its warp: the operation, and the lanes that must arrive (0: those that can).
  const Together* together = nullptr;
  uint32_t lanes = 0;

  bool carry = false;
  cuda::CUresult failed = cuda::CUDA_SUCCESS;
  std::string why;

 private:
  std::vector<Frame> frames_;
  std::vector<std::byte> local_;
};

}  // namespace arraybridge::simulated::ptx
