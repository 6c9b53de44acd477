// Every run of a few short programs on a machine that executes out of order and is multi-copy atomic: more reorderings
// than x86 or ARMv8 allow. What a protocol of two processes claims is asked of each end.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace arraybridge::machine {

using Memory = std::array<uint8_t, 12>;     // by place, all 0 but for what a test says
using Registers = std::array<uint8_t, 12>;  // of all programs
// What a store writes, or that it does not happen: a branch of the program.
using Value = std::function<int(const Registers&)>;
constexpr int kNoStore = -1;

enum class Kind : uint8_t { kLoad, kStore, kSwap, kFence };
enum class Order : uint8_t { kRelaxed, kAcquire, kRelease, kBoth };

struct Step {
  Kind kind = Kind::kFence;
  uint8_t place = 0;
  uint8_t into = 0;       // register of a load; of a swap: 1 if it happened
  Value value = nullptr;  // of a store or swap
  Order order = Order::kRelaxed;
  std::vector<uint8_t> needs{};  // registers that the store's value or branch depends on
  uint8_t expected = 0;          // of a swap: what has to be there
};
using Program = std::vector<Step>;

inline Step LoadOf(uint8_t place, uint8_t into, Order order) { return {Kind::kLoad, place, into, nullptr, order}; }
inline Step StoreTo(uint8_t place, Value value, Order order, std::vector<uint8_t> needs = {}) {
  return {Kind::kStore, place, 0, std::move(value), order, std::move(needs)};
}
inline Step StoreTo(uint8_t place, int value, Order order) {
  return StoreTo(
      place, [value](const Registers&) { return value; }, order);
}
// Compares and swaps, at once; does nothing if `if_ok` of the registers is kNoStore.
inline Step SwapAt(uint8_t place, uint8_t expected, Value if_ok, uint8_t into, Order order,
                   std::vector<uint8_t> needs = {}) {
  return {Kind::kSwap, place, into, std::move(if_ok), order, std::move(needs), expected};
}
inline Step FullFence() { return {}; }

// REQUIRES: programs of at most 16 steps.
class Machine {
 public:
  // Asked once for each different end.
  using Judge = std::function<void(const Memory&, const Registers&)>;

  Machine(std::vector<Program> programs, Judge judge) : programs_(std::move(programs)), judge_(std::move(judge)) {}

  void Explore(const Memory& memory = {}) { Visit({{}, memory, {}}); }

 private:
  struct Now {
    std::array<uint16_t, 3> done{};  // of each program, a bit a step
    Memory memory{};
    Registers registers{};

    friend auto operator<=>(const Now&, const Now&) = default;  // NOLINT(modernize-use-nullptr): its 0
  };

  static bool Reads(const Step& step) { return step.kind == Kind::kLoad || step.kind == Kind::kSwap; }
  static bool Acquires(Order order) { return order == Order::kAcquire || order == Order::kBoth; }
  static bool Releases(Order order) { return order == Order::kRelease || order == Order::kBoth; }
  static bool Needs(const Step& step, const Step& earlier) {
    for (const uint8_t needed : step.needs) {
      if (Reads(earlier) && earlier.into == needed) return true;
    }
    return false;
  }
  // Whether nothing that has not happened yet must happen before.
  static bool MayHappen(const Program& program, uint16_t done, size_t i) {
    const Step& step = program[i];
    for (size_t j = 0; j < i; ++j) {
      if ((done >> j & 1) != 0) continue;
      const Step& earlier = program[j];
      if (step.kind == Kind::kFence || earlier.kind == Kind::kFence) return false;
      if (Acquires(earlier.order) || Releases(step.order)) return false;
      if (earlier.place == step.place || Needs(step, earlier)) return false;
    }
    return true;
  }

  static void Run(const Step& step, Now& now) {
    if (step.kind == Kind::kLoad) now.registers[step.into] = now.memory[step.place];
    if (step.kind != Kind::kStore && step.kind != Kind::kSwap) return;
    const int value = step.value(now.registers);
    if (step.kind == Kind::kSwap) {
      now.registers[step.into] = value != kNoStore && now.memory[step.place] == step.expected ? 1 : 0;
      if (now.registers[step.into] == 0) return;
    }
    if (value != kNoStore) now.memory[step.place] = static_cast<uint8_t>(value);
  }

  void Visit(const Now& now) {
    if (!seen_.insert(now).second) return;
    bool ended = true;
    for (size_t thread = 0; thread < programs_.size(); ++thread) {
      const Program& program = programs_[thread];
      for (size_t i = 0; i < program.size(); ++i) {
        if ((now.done[thread] >> i & 1) != 0 || !MayHappen(program, now.done[thread], i)) continue;
        ended = false;
        Now next = now;
        next.done[thread] = static_cast<uint16_t>(next.done[thread] | 1u << i);
        Run(program[i], next);
        Visit(next);
      }
    }
    if (ended) judge_(now.memory, now.registers);
  }

  const std::vector<Program> programs_;
  const Judge judge_;
  std::set<Now> seen_;
};

}  // namespace arraybridge::machine
