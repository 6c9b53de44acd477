// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/thread.h"

#include <cstring>

namespace arraybridge::simulated::ptx {
namespace {

constexpr size_t kFramesMax = 1000;
constexpr uint64_t kLocalMax = uint64_t{512} << 10;  // bytes of local memory per thread, as on hardware
constexpr std::byte kFresh{0xCD};

std::string Hexadecimal(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof(text), "%#llx", static_cast<unsigned long long>(value));
  return text;
}

std::byte* Inside(std::vector<std::byte>& memory, uint64_t offset, uint64_t bytes) {
  return offset <= memory.size() && bytes <= memory.size() - offset ? memory.data() + offset : nullptr;
}

}  // namespace

uint64_t WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    default:
      return 0;
  }
}

Thread::Thread(Block& of, uint32_t thread_number)
    : block(of),
      number(thread_number),
      index{thread_number % of.grid.threads[0], thread_number / of.grid.threads[0] % of.grid.threads[1],
            thread_number / of.grid.threads[0] / of.grid.threads[1]} {
  static const std::vector<Passed> kNone;
  Call(*of.grid.code, kNone, kNone);
  frame().params = of.grid.parameters;
}

void Thread::Run(uint64_t steps_max) {
  for (uint64_t i = 0; i < steps_max && state == ThreadState::kRuns && failed == cuda::CUDA_SUCCESS; ++i) {
    Frame& now = frames_.back();
    if (now.next >= now.code->steps.size()) {
      Return();
      continue;
    }
    const Step& step = now.code->steps[now.next++];
    ++block.grid.steps;
    if (step.guarded && (now.registers[step.guard] != 0) == step.guard_negated) continue;
    step.run(*this);
    if (failed != cuda::CUDA_SUCCESS) why += " in line " + std::to_string(step.line);
  }
}

void Thread::Call(const Code& code, const std::vector<Passed>& arguments, const std::vector<Passed>& results) {
  const Function& function = *code.function;
  if (frames_.size() == kFramesMax || local_.size() + function.local_bytes > kLocalMax) {
    return Fail(cuda::CUDA_ERROR_HARDWARE_STACK_ERROR, "a call of '" + function.name + "' has no stack left");
  }
  Frame made{.code = &code,
             .registers = std::vector<uint64_t>(function.registers),
             .params = std::vector<std::byte>(function.param_bytes),
             .local_base = local_.size(),
             .results = &results};
  for (const Passed& each : arguments) {
    uint64_t value = 0;
    const std::byte* from = each.from_register ? nullptr : frame().params.data() + each.from;
    if (each.from_register) value = frame().registers[each.from];
    if (from == nullptr) from = reinterpret_cast<const std::byte*>(&value);
    if (each.to_register) {
      std::memcpy(&made.registers[each.to], from, std::min<uint64_t>(each.bytes, sizeof(value)));
    } else {
      std::memcpy(made.params.data() + each.to, from, each.bytes);
    }
  }
  local_.resize(RoundUp(local_.size(), 16) + function.local_bytes, kFresh);
  made.local_base = local_.size() - function.local_bytes;
  frames_.push_back(std::move(made));
}

void Thread::Return() {
  if (frames_.size() == 1) return Exit();
  const Frame done = std::move(frames_.back());
  frames_.pop_back();
  local_.resize(done.local_base);
  for (const Passed& each : *done.results) {
    uint64_t value = 0;
    const std::byte* from = done.params.data() + each.from;
    if (each.from_register) {
      value = done.registers[each.from];
      from = reinterpret_cast<const std::byte*>(&value);
    }
    if (each.to_register) {
      uint64_t& to = frame().registers[each.to];
      to = 0;
      std::memcpy(&to, from, std::min<uint64_t>(each.bytes, sizeof(to)));
    } else {
      std::memcpy(frame().params.data() + each.to, from, each.bytes);
    }
  }
}

void Thread::WaitAtBarrier(uint32_t which, uint32_t threads) {
  if (which >= kBarriers) return Fail(cuda::CUDA_ERROR_ILLEGAL_INSTRUCTION, "a block has no such barrier");
  barrier = which;
  barrier_threads = threads;
  state = ThreadState::kAtBarrier;
}

void Thread::ArriveAtBarrier(uint32_t which) {
  if (which >= kBarriers) return Fail(cuda::CUDA_ERROR_ILLEGAL_INSTRUCTION, "a block has no such barrier");
  ++block.arrived[which];
}

std::byte* Thread::Memory(Space space, uint64_t address, uint64_t bytes, bool write) {
  if (space == Space::kGeneric) {
    const uint64_t window = address & kWindowMask;
    space = window == kSharedWindow  ? Space::kShared
            : window == kLocalWindow ? Space::kLocal
            : window == kParamWindow ? Space::kParam
                                     : Space::kGlobal;
    if (space != Space::kGlobal) address &= ~kWindowMask;
  }
  if (address % bytes != 0) {
    Fail(cuda::CUDA_ERROR_MISALIGNED_ADDRESS, Hexadecimal(address) + " is not a multiple of " + std::to_string(bytes));
    return nullptr;
  }
  std::byte* found = nullptr;
  switch (space) {
    case Space::kShared:
      found = Inside(block.shared, address, bytes);
      break;
    case Space::kLocal:
      found = Inside(local_, address, bytes);
      break;
    case Space::kParam:
      found = Inside(frame().params, address, bytes);
      break;
    default:
      found = block.grid.memory->Bytes(address, bytes, write);
  }
  if (found == nullptr) {
    Fail(cuda::CUDA_ERROR_ILLEGAL_ADDRESS, (write ? "a write of " : "a read of ") + std::to_string(bytes) +
                                               " bytes at " + Hexadecimal(address) + " is not allowed");
  }
  return found;
}

void Thread::Fail(cuda::CUresult result, const std::string& reason) {
  if (failed != cuda::CUDA_SUCCESS) return;
  failed = result;
  why = reason;
}

}  // namespace arraybridge::simulated::ptx
