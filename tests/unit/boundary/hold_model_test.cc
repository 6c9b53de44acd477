// Every run of one client that holds a share against a broker that withdraws it and writes another into its place, on a
// machine that executes out of order and is multi-copy atomic: more reorderings than x86 or ARMv8 allow. Each run that
// ends with a confirmed hold must have read the bytes of the share that it confirmed.
//
// The steps are those of proto/boundary/holds_layout.h and daemon/memory/catalogue.cc. Leaving one out that the
// argument needs must show, or this would prove nothing.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace arraybridge {
namespace {

enum Place : uint8_t { kState, kHold, kFirstByte, kLastByte, kPlaces };
enum Register : uint8_t { kSeen, kAgain, kFirst, kLast, kHeld, kRegisters };
// Of the state: live with the first share, dead, writing, live with the second one.
enum : uint8_t { kLive1 = 1, kDead1, kWriting2, kLive2 };

enum class Kind : uint8_t { kLoad, kStore, kFence };
enum class Order : uint8_t { kRelaxed, kAcquire, kRelease };

using Memory = std::array<uint8_t, kPlaces>;
using Registers = std::array<uint8_t, kRegisters>;
// What a store writes, or that it does not happen: a branch of the program.
using Value = int (*)(const Registers&);
constexpr int kNoStore = -1;

struct Step {
  Kind kind = Kind::kFence;
  Place place = kState;
  Register into = kSeen;  // of a load
  Value value = nullptr;  // of a store
  Order order = Order::kRelaxed;
  std::vector<Register> needs{};  // what the store's value or branch depends on
};
using Program = std::vector<Step>;

Step LoadOf(Place place, Register into, Order order) { return {Kind::kLoad, place, into, nullptr, order}; }
Step StoreTo(Place place, Value value, Order order, std::vector<Register> needs = {}) {
  return {Kind::kStore, place, kSeen, value, order, std::move(needs)};
}
Step FullFence() { return {}; }

// What may be left out.
struct Client {
  bool holds = true;
  bool fence = true;
  Order release = Order::kRelease;

  Program program() const {
    const Value hold = [](const Registers& r) { return r[kSeen] == kLive1 ? 1 : r[kSeen] == kLive2 ? 2 : 0; };
    Program steps{LoadOf(kState, kSeen, Order::kAcquire)};
    if (holds) steps.push_back(StoreTo(kHold, hold, Order::kRelease, {kSeen}));
    if (fence) steps.push_back(FullFence());
    steps.push_back(LoadOf(kState, kAgain, Order::kAcquire));
    steps.push_back(LoadOf(kFirstByte, kFirst, Order::kRelaxed));
    steps.push_back(LoadOf(kLastByte, kLast, Order::kRelaxed));
    steps.push_back(StoreTo(
        kHold, [](const Registers&) { return 0; }, release));
    return steps;
  }
};

struct Broker {
  bool fence = true;
  Order publish = Order::kRelease;

  Program program() const {
    const auto unless_held = [](int value) -> Value {
      if (value == kWriting2) return [](const Registers& r) { return r[kHeld] == 1 ? kNoStore : int{kWriting2}; };
      if (value == kLive2) return [](const Registers& r) { return r[kHeld] == 1 ? kNoStore : int{kLive2}; };
      return [](const Registers& r) { return r[kHeld] == 1 ? kNoStore : 2; };  // the second share's bytes
    };
    Program steps{StoreTo(
        kState, [](const Registers&) { return int{kDead1}; }, Order::kRelaxed)};
    if (fence) steps.push_back(FullFence());
    steps.push_back(LoadOf(kHold, kHeld, Order::kAcquire));
    steps.push_back(StoreTo(kState, unless_held(kWriting2), Order::kRelaxed, {kHeld}));
    steps.push_back(FullFence());
    steps.push_back(StoreTo(kFirstByte, unless_held(2), Order::kRelaxed, {kHeld}));
    steps.push_back(StoreTo(kLastByte, unless_held(2), Order::kRelaxed, {kHeld}));
    steps.push_back(StoreTo(kState, unless_held(kLive2), publish, {kHeld}));
    return steps;
  }
};

class Machine {
 public:
  struct Outcome {
    uint64_t runs = 0;       // different ends
    uint64_t confirmed = 0;  // with a hold that was confirmed
    uint64_t wrong = 0;      // and bytes that were not those of its share
  };

  Machine(const Client& client, const Broker& broker) : programs_{client.program(), broker.program()} {}

  Outcome Explore() {
    Visit({{}, {kLive1, 0, 1, 1}, {}});
    return outcome_;
  }

 private:
  struct Now {
    std::array<uint8_t, 2> done{};  // of each program, a bit a step
    Memory memory{};
    Registers registers{};

    friend auto operator<=>(const Now&, const Now&) = default;  // NOLINT(modernize-use-nullptr): its 0
  };

  static bool Needs(const Step& step, const Step& earlier) {
    for (const Register needed : step.needs) {
      if (earlier.kind == Kind::kLoad && earlier.into == needed) return true;
    }
    return false;
  }
  // Whether nothing that has not happened yet must happen before.
  static bool MayHappen(const Program& program, uint8_t done, size_t i) {
    const Step& step = program[i];
    for (size_t j = 0; j < i; ++j) {
      if ((done >> j & 1) != 0) continue;
      const Step& earlier = program[j];
      if (step.kind == Kind::kFence || earlier.kind == Kind::kFence) return false;
      if (earlier.order == Order::kAcquire || step.order == Order::kRelease) return false;
      if (earlier.place == step.place || Needs(step, earlier)) return false;
    }
    return true;
  }

  static void Run(const Step& step, Now& now) {
    if (step.kind == Kind::kLoad) now.registers[step.into] = now.memory[step.place];
    if (step.kind != Kind::kStore) return;
    const int value = step.value(now.registers);
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
        next.done[thread] = static_cast<uint8_t>(next.done[thread] | 1u << i);
        Run(program[i], next);
        Visit(next);
      }
    }
    if (ended) Judge(now.registers);
  }

  void Judge(const Registers& registers) {
    ++outcome_.runs;
    const uint8_t state = registers[kSeen];
    if (state != registers[kAgain] || (state != kLive1 && state != kLive2)) return;
    ++outcome_.confirmed;
    const uint8_t share = state == kLive1 ? 1 : 2;
    if (registers[kFirst] != share || registers[kLast] != share) ++outcome_.wrong;
  }

  const std::array<Program, 2> programs_;
  std::set<Now> seen_;
  Outcome outcome_;
};

uint64_t Wrong(const Client& client, const Broker& broker) { return Machine(client, broker).Explore().wrong; }

TEST(HoldModelTest, NoRunReadsAnotherSharesBytes) {
  const auto outcome = Machine({}, {}).Explore();
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_EQ(outcome.runs, 27u);
  EXPECT_GT(outcome.confirmed, 0u);
  EXPECT_LT(outcome.confirmed, outcome.runs) << "some holds come too late, and are taken back";
}

TEST(HoldModelTest, EveryStepOfTheArgumentIsNeeded) {
  EXPECT_GT(Wrong({.holds = false}, {}), 0u) << "nothing is held";
  EXPECT_GT(Wrong({.fence = false}, {}), 0u) << "the client looks again before its hold is seen";
  EXPECT_GT(Wrong({}, {.fence = false}), 0u) << "the broker looks at holds before the record is seen dead";
  EXPECT_GT(Wrong({.release = Order::kRelaxed}, {}), 0u) << "bytes are read after the hold has ended";
  EXPECT_GT(Wrong({}, {.publish = Order::kRelaxed}), 0u) << "the next share is seen before its bytes";
}

}  // namespace
}  // namespace arraybridge
