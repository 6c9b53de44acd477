// SPDX-License-Identifier: Apache-2.0
// Explores every run of a producer, a consumer and a broker that revokes their direct channel (reordering_machine.h):
// each sent entry is received once, from the direct channel or from the broker's queue. The steps are those of
// proto/boundary/layouts/direct_channel.h; spsc_queue_model_test has those of the queue itself: an entry is whole, a
// slot is filled again once it was copied, and no end sleeps while there is something for it. Omitting a step that the
// argument needs must lead to an error; otherwise the test would prove nothing.
#include <gtest/gtest.h>

#include <cstdint>

#include "proto/boundary/layouts/direct_channel.h"
#include "tests/unit/boundary/reordering_machine.h"

namespace arraybridge {
namespace {

using machine::FullFence;
using machine::kNoStore;
using machine::LoadOf;
using machine::Machine;
using machine::Memory;
using machine::Order;
using machine::Program;
using machine::Registers;
using machine::StoreTo;

enum Place : uint8_t { kEntry, kHead, kTail, kRevoked, kCounted, kTaken, kSeen };
enum Register : uint8_t {
  kSenderSaw,
  kSenderSawEnd,
  kToldCounted,
  kFound,
  kRead,
  kReceiverSaw,
  kReceiverSawEnd,
  kToldTaken,
  kItsTail,
  kItsHead,
  kQueued,
  kItsSeen
};

// The steps that a test may omit.
struct Steps {
  bool sender_fence = true;
  bool receiver_fence = true;
  bool broker_fence = true;
  Order head = Order::kRelease;
  Order end = Order::kRelease;
};

Program Sender(const Steps& steps) {
  Program program{StoreTo(kEntry, 1, Order::kRelaxed), StoreTo(kHead, 1, steps.head)};
  if (steps.sender_fence) program.push_back(FullFence());
  program.push_back(LoadOf(kRevoked, kSenderSaw, Order::kAcquire));
  program.push_back(LoadOf(kRevoked, kSenderSawEnd, Order::kAcquire));
  program.push_back(LoadOf(kCounted, kToldCounted, Order::kRelaxed));
  return program;
}

Program Receiver(const Steps& steps) {
  const auto if_found = [](const Registers& r) { return r[kFound] == 1 ? 1 : kNoStore; };
  Program program{LoadOf(kHead, kFound, Order::kAcquire), LoadOf(kEntry, kRead, Order::kRelaxed),
                  StoreTo(kTail, if_found, Order::kRelease, {kFound})};
  if (steps.receiver_fence) program.push_back(FullFence());
  program.push_back(LoadOf(kRevoked, kReceiverSaw, Order::kAcquire));
  program.push_back(LoadOf(kRevoked, kReceiverSawEnd, Order::kAcquire));
  program.push_back(LoadOf(kTaken, kToldTaken, Order::kRelaxed));
  return program;
}

Program Broker(const Steps& steps) {
  Program program{StoreTo(kRevoked, direct_channel::kRevoking, Order::kRelaxed)};
  if (steps.broker_fence) program.push_back(FullFence());
  program.push_back(LoadOf(kTail, kItsTail, Order::kAcquire));
  program.push_back(LoadOf(kHead, kItsHead, Order::kAcquire));
  program.push_back(LoadOf(kEntry, kQueued, Order::kRelaxed));
  program.push_back(
      StoreTo(kCounted, [](const Registers& r) { return int{r[kItsHead]}; }, Order::kRelaxed, {kItsHead}));
  program.push_back(StoreTo(kTaken, [](const Registers& r) { return int{r[kItsTail]}; }, Order::kRelaxed, {kItsTail}));
  program.push_back(StoreTo(kRevoked, direct_channel::kRevoked, steps.end));
  return program;
}

struct Outcome {
  uint64_t direct = 0;  // distinct final states in which the entry was received on the direct channel,
  uint64_t queued = 0;  // through the broker's queue,
  uint64_t unsent = 0;  // or its sender learned that it must send by a call
  uint64_t wrong = 0;
};

Outcome Explore(const Steps& steps) {
  Outcome outcome;
  const auto judge = [&](const Memory& memory, const Registers& r) {
    const bool sent = r[kSenderSaw] == direct_channel::kStands || memory[kCounted] == 1;
    const bool direct = r[kFound] == 1 && (r[kReceiverSaw] == direct_channel::kStands || memory[kTaken] == 1);
    const bool queued = r[kItsHead] == 1 && r[kItsTail] == 0;
    outcome.direct += direct ? 1 : 0;
    outcome.queued += queued ? 1 : 0;
    outcome.unsent += sent ? 0 : 1;
    const bool once = (direct ? 1 : 0) + (queued ? 1 : 0) == (sent ? 1 : 0);
    const bool right = (!direct || r[kRead] == 1) && (!queued || r[kQueued] == 1);
    const bool told = (r[kSenderSawEnd] != direct_channel::kRevoked || r[kToldCounted] == memory[kCounted]) &&
                      (r[kReceiverSawEnd] != direct_channel::kRevoked || r[kToldTaken] == memory[kTaken]);
    if (!once || !right || !told) ++outcome.wrong;
  };
  Machine({Sender(steps), Receiver(steps), Broker(steps)}, judge).Explore();
  return outcome;
}

TEST(DirectChannelModelTest, ASentEntryIsReceivedOnceHoweverTheDirectChannelEnds) {
  const Outcome outcome = Explore({});
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_GT(outcome.direct, 0u);
  EXPECT_GT(outcome.queued, 0u);
  EXPECT_GT(outcome.unsent, 0u);
}

TEST(DirectChannelModelTest, EveryStepOfTheArgumentIsNeeded) {
  EXPECT_GT(Explore({.sender_fence = false}).wrong, 0u) << "the sender assumes that its entry counted";
  EXPECT_GT(Explore({.receiver_fence = false}).wrong, 0u) << "the entry is received twice";
  EXPECT_GT(Explore({.broker_fence = false}).wrong, 0u)
      << "the broker reads the counts before the ends see that the direct channel has ended";
  EXPECT_GT(Explore({.head = Order::kRelaxed}).wrong, 0u) << "an entry is visible before it is written";
  EXPECT_GT(Explore({.end = Order::kRelaxed}).wrong, 0u)
      << "an end sees the end of the direct channel before the counts";
}

// A consumer reports that it has taken the entry, and later that it has not. The producer reuses the entry's bytes
// after the first report. If the broker put the entry into the queue nevertheless, its receiver would see the new
// bytes.
struct Retold {
  bool is_said = true;  // the count that the sender has seen
  bool sender_fence = true;
  bool broker_fence = true;
};
uint64_t QueuedThoughCarvedAnew(const Retold& steps) {
  uint64_t wrong = 0;
  const auto if_taken = [](const Registers& r) { return r[kSenderSaw] == 1 ? 1 : kNoStore; };
  const auto if_stands = [](const Registers& r) {
    return r[kSenderSaw] == 1 && r[kSenderSawEnd] == direct_channel::kStands ? 2 : kNoStore;
  };
  Program sender{LoadOf(kTail, kSenderSaw, Order::kAcquire)};
  if (steps.is_said) sender.push_back(StoreTo(kSeen, if_taken, Order::kRelease, {kSenderSaw}));
  if (steps.sender_fence) sender.push_back(FullFence());
  sender.push_back(LoadOf(kRevoked, kSenderSawEnd, Order::kAcquire));
  sender.push_back(StoreTo(kEntry, if_stands, Order::kRelaxed, {kSenderSaw, kSenderSawEnd}));
  const Program receiver{StoreTo(kTail, 1, Order::kRelease), StoreTo(kTail, 0, Order::kRelease)};
  Program broker{StoreTo(kRevoked, direct_channel::kRevoking, Order::kRelaxed)};
  if (steps.broker_fence) broker.push_back(FullFence());
  broker.push_back(LoadOf(kTail, kItsTail, Order::kAcquire));
  broker.push_back(LoadOf(kSeen, kItsSeen, Order::kAcquire));
  Machine({sender, receiver, broker}, [&](const Memory& memory, const Registers& r) {
    const bool queued = r[kItsTail] == 0 && r[kItsSeen] == 0;
    if (queued && memory[kEntry] == 2) ++wrong;
  }).Explore();
  return wrong;
}

TEST(DirectChannelModelTest, AReusedEntryIsNotQueuedWhateverTheReceiverReportsLater) {
  EXPECT_EQ(QueuedThoughCarvedAnew({}), 0u);
  EXPECT_GT(QueuedThoughCarvedAnew({.is_said = false}), 0u) << "the broker relies only on the receiver";
  EXPECT_GT(QueuedThoughCarvedAnew({.sender_fence = false}), 0u);
  EXPECT_GT(QueuedThoughCarvedAnew({.broker_fence = false}), 0u);
}

}  // namespace
}  // namespace arraybridge
