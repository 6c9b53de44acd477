// SPDX-License-Identifier: Apache-2.0
// Explores every run of a few short programs on a machine that executes out of order, reads its own stores before other
// processors see them, and is multi-copy atomic: it allows more reorderings than x86 and ARMv8. A test checks the
// claims of a two-process protocol in each final state. tests/order checks the protocols in the models of C++ and ARMv8
// itself.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace arraybridge::machine {

using Memory = std::array<uint8_t, 12>;     // by place; 0 unless a test sets it
using Registers = std::array<uint8_t, 12>;  // shared by all programs
// The value of a store, or kNoStore if a branch of the program skips it.
using Value = std::function<int(const Registers&)>;
constexpr int kNoStore = -1;

enum class Kind : uint8_t { kLoad, kStore, kSwap, kFence };
enum class Order : uint8_t { kRelaxed, kAcquire, kRelease, kBoth };

struct Step {
  Kind kind = Kind::kFence;
  uint8_t place = 0;
  uint8_t into = 0;       // target register of a load; for a swap: 1 if it succeeded
  Value value = nullptr;  // for a store or swap
  Order order = Order::kRelaxed;
  std::vector<uint8_t> needs{};  // registers on which the value or branch depends
  uint8_t expected = 0;          // for a swap: the expected old value
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
// An atomic compare-and-swap; does nothing if `if_ok` returns kNoStore.
inline Step SwapAt(uint8_t place, uint8_t expected, Value if_ok, uint8_t into, Order order,
                   std::vector<uint8_t> needs = {}) {
  return {Kind::kSwap, place, into, std::move(if_ok), order, std::move(needs), expected};
}
inline Step FullFence() { return {}; }

// REQUIRES: each program has at most 16 steps.
class Machine {
 public:
  // Called once for each distinct final state.
  using Judge = std::function<void(const Memory&, const Registers&)>;

  Machine(std::vector<Program> programs, Judge judge) : programs_(std::move(programs)), judge_(std::move(judge)) {}

  void Explore(const Memory& memory = {}) { Visit({{}, memory, {}}); }

 private:
  struct Now {
    std::array<uint16_t, 3> done{};  // for each program, one bit per step
    Memory memory{};
    Registers registers{};

    friend auto operator<=>(const Now&, const Now&) = default;  // the literal 0 in its implementation
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
  // Whether step `i` may happen now: every step that must happen before it is done.
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

  static bool KnowsValue(const Program& program, uint16_t done, size_t store) {
    for (size_t j = 0; j < store; ++j) {
      if ((done >> j & 1) == 0 && Needs(program[store], program[j])) return false;
    }
    return true;
  }

  // What load `i` reads of an earlier store of its program that has not happened yet, as a processor reads its store
  // buffer; kNoStore: no store waits, or another step has to happen first.
  static int Forwarded(const Program& program, uint16_t done, size_t i, const Registers& registers) {
    const Step& load = program[i];
    int value = kNoStore;
    for (size_t j = 0; j < i && load.kind == Kind::kLoad; ++j) {
      const Step& earlier = program[j];
      if ((done >> j & 1) != 0) continue;
      if (earlier.kind == Kind::kFence || Acquires(earlier.order) || Needs(load, earlier)) return kNoStore;
      if (earlier.place != load.place) continue;
      if (earlier.kind == Kind::kSwap || !KnowsValue(program, done, j)) return kNoStore;
      if (earlier.kind == Kind::kLoad) {
        value = kNoStore;  // it may not read less than this one
      } else if (const int stored = earlier.value(registers); stored != kNoStore) {
        value = stored;
      }
    }
    return value;
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
        if ((now.done[thread] >> i & 1) != 0) continue;
        const bool happens = MayHappen(program, now.done[thread], i);
        const int forwarded = happens ? kNoStore : Forwarded(program, now.done[thread], i, now.registers);
        if (!happens && forwarded == kNoStore) continue;
        ended = false;
        Now next = now;
        next.done[thread] = static_cast<uint16_t>(next.done[thread] | 1u << i);
        if (happens) {
          Run(program[i], next);
        } else {
          next.registers[program[i].into] = static_cast<uint8_t>(forwarded);
        }
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
