// SPDX-License-Identifier: Apache-2.0
// Explores every run of a client that holds a share while the broker withdraws it and writes another one into its place
// (reordering_machine.h). A run that ends with a confirmed hold must have read the bytes of the share that it
// confirmed.
//
// The steps are those of proto/boundary/layouts/hazard.h and daemon/memory/shared_pages/catalogue.cc. Omitting a step
// that the argument needs must lead to an error; otherwise the test would prove nothing.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/unit/boundary/reordering_machine.h"

namespace arraybridge {
namespace {

using machine::FullFence;
using machine::kNoStore;
using machine::LoadOf;
using machine::Memory;
using machine::Order;
using machine::Program;
using machine::Registers;
using machine::StoreTo;
using machine::Value;

enum Place : uint8_t { kState, kHold, kFirstByte, kLastByte };
enum Register : uint8_t { kSeen, kAgain, kFirst, kLast, kHeld };
// Values of the state: live with the first share, dead, writing, live with the second share.
enum : uint8_t { kLive1 = 1, kDead1, kWriting2, kLive2 };

// The steps that a test may omit.
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
      return [](const Registers& r) { return r[kHeld] == 1 ? kNoStore : 2; };  // bytes of the second share
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

struct Outcome {
  uint64_t runs = 0;       // distinct final states
  uint64_t confirmed = 0;  // final states with a confirmed hold
  uint64_t wrong = 0;      // of these, final states with bytes of another share
};

Outcome Explore(const Client& client, const Broker& broker) {
  Outcome outcome;
  const auto judge = [&](const Memory& /*memory*/, const Registers& registers) {
    ++outcome.runs;
    const uint8_t state = registers[kSeen];
    if (state != registers[kAgain] || (state != kLive1 && state != kLive2)) return;
    ++outcome.confirmed;
    const uint8_t share = state == kLive1 ? 1 : 2;
    if (registers[kFirst] != share || registers[kLast] != share) ++outcome.wrong;
  };
  Memory memory{};
  memory[kState] = kLive1;
  memory[kFirstByte] = memory[kLastByte] = 1;
  machine::Machine({client.program(), broker.program()}, judge).Explore(memory);
  return outcome;
}

uint64_t Wrong(const Client& client, const Broker& broker) { return Explore(client, broker).wrong; }

TEST(HazardModelTest, NoRunReadsAnotherSharesBytes) {
  const auto outcome = Explore({}, {});
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_EQ(outcome.runs, 27u);
  EXPECT_GT(outcome.confirmed, 0u);
  EXPECT_LT(outcome.confirmed, outcome.runs) << "some holds come too late and are cleared";
}

TEST(HazardModelTest, EveryStepOfTheArgumentIsNeeded) {
  EXPECT_GT(Wrong({.holds = false}, {}), 0u) << "nothing is held";
  EXPECT_GT(Wrong({.fence = false}, {}), 0u) << "the client checks the state before its hold is visible";
  EXPECT_GT(Wrong({}, {.fence = false}), 0u) << "the broker checks holds before the dead state is visible";
  EXPECT_GT(Wrong({.release = Order::kRelaxed}, {}), 0u) << "bytes are read after the hold has ended";
  EXPECT_GT(Wrong({}, {.publish = Order::kRelaxed}), 0u) << "the next share is visible before its bytes";
}

}  // namespace
}  // namespace arraybridge
