// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/boundary/reordering_machine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace arraybridge {
namespace {

using machine::FullFence;
using machine::LoadOf;
using machine::Machine;
using machine::Memory;
using machine::Order;
using machine::Program;
using machine::Registers;
using machine::StoreTo;
using machine::SwapAt;

// Whether a run ends with these registers.
bool Ends(std::vector<Program> programs, const std::function<bool(const Registers&)>& so) {
  bool found = false;
  Machine(std::move(programs), [&](const Memory&, const Registers& registers) {
    found = found || so(registers);
  }).Explore();
  return found;
}

// Stores 1 to `own`, reads it into `into`, then reads the other's place into the next register.
Program StoresAndReads(uint8_t own, uint8_t other, uint8_t into, Order store = Order::kRelaxed) {
  return {StoreTo(own, 1, store), LoadOf(own, into, Order::kAcquire),
          LoadOf(other, static_cast<uint8_t>(into + 1), Order::kRelaxed)};
}

bool BothReadNothing(const Registers& registers) { return registers[1] == 0 && registers[3] == 0; }

TEST(ReorderingMachine, ForwardsAStoreToALaterAcquireLoad) {
  EXPECT_TRUE(Ends({StoresAndReads(0, 1, 0), StoresAndReads(1, 0, 2)}, BothReadNothing));
  EXPECT_TRUE(
      Ends({StoresAndReads(0, 1, 0, Order::kRelease), StoresAndReads(1, 0, 2, Order::kRelease)}, BothReadNothing));
}

TEST(ReorderingMachine, AFenceEndsTheForwarding) {
  Program left = StoresAndReads(0, 1, 0);
  Program right = StoresAndReads(1, 0, 2);
  left.insert(left.begin() + 1, FullFence());
  right.insert(right.begin() + 1, FullFence());
  EXPECT_FALSE(Ends({left, right}, BothReadNothing));
}

TEST(ReorderingMachine, AProgramReadsItsOwnLastStore) {
  const Program own{StoreTo(0, 1, Order::kRelaxed), StoreTo(0, 2, Order::kRelaxed), LoadOf(0, 0, Order::kRelaxed)};
  EXPECT_FALSE(Ends({own}, [](const Registers& registers) { return registers[0] != 2; }));
}

TEST(ReorderingMachine, TwoLoadsOfAPlaceDoNotReadBackwards) {
  const Program reads{StoreTo(0, 1, Order::kRelaxed), LoadOf(0, 0, Order::kRelaxed), LoadOf(0, 1, Order::kRelaxed)};
  const Program writes{StoreTo(0, 2, Order::kRelaxed)};
  EXPECT_FALSE(Ends({reads, writes}, [](const Registers& read) { return read[0] == 2 && read[1] == 1; }));
  EXPECT_TRUE(Ends({reads, writes}, [](const Registers& read) { return read[0] == 1 && read[1] == 2; }));
}

TEST(ReorderingMachine, AStoreIsForwardedOnceItsValueIsKnown) {
  const auto loaded = [](const Registers& registers) { return static_cast<int>(registers[0]); };
  const Program copies{LoadOf(1, 0, Order::kRelaxed), StoreTo(0, loaded, Order::kRelaxed, {0}),
                       LoadOf(0, 1, Order::kRelaxed)};
  const Program writes{StoreTo(1, 1, Order::kRelaxed)};
  EXPECT_FALSE(Ends({copies, writes}, [](const Registers& registers) { return registers[0] != registers[1]; }));
}

TEST(ReorderingMachine, AStoreThatABranchSkipsIsNotRead) {
  const auto skipped = [](const Registers&) { return machine::kNoStore; };
  const Program reads{StoreTo(0, 1, Order::kRelaxed), StoreTo(0, skipped, Order::kRelaxed),
                      LoadOf(0, 0, Order::kRelaxed)};
  EXPECT_FALSE(Ends({reads}, [](const Registers& registers) { return registers[0] != 1; }));
}

TEST(ReorderingMachine, ASwapReadsMemory) {
  const auto to = [](const Registers&) { return 2; };
  const Program swaps{StoreTo(0, 1, Order::kRelaxed), SwapAt(0, 1, to, 0, Order::kBoth), LoadOf(0, 1, Order::kRelaxed)};
  const Program writes{StoreTo(0, 3, Order::kRelaxed)};
  EXPECT_FALSE(Ends({swaps, writes}, [](const Registers& read) { return read[0] == 1 && read[1] == 1; }));
  EXPECT_FALSE(Ends({swaps, writes}, [](const Registers& read) { return read[0] == 0 && read[1] == 1; }));
}

}  // namespace
}  // namespace arraybridge
