// SPDX-License-Identifier: Apache-2.0
// Explores every run of the steps of proto/boundary/layouts/spsc_queue.h on a machine that reorders more than x86 and
// ARMv8 (reordering_machine.h): no request and no completion is lost, torn or duplicated, no slot is refilled before it
// was copied, and no side sleeps while there is an entry for it. Omitting a step that the argument needs must lead to
// an error.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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
using machine::Value;

Value ValueIf(uint8_t reg, int value) {
  return [=](const Registers& r) { return r[reg] != 0 ? value : kNoStore; };
}

// One request and its completion. The client submits, polls once, announces its sleep and polls again. The daemon polls
// and serves, announces its sleep, and polls and serves again.
struct RoundTrip {
  Order head = Order::kRelease;
  Order poll = Order::kAcquire;
  Order completion_head = Order::kRelease;
  bool fence_after_submit = true;
  bool fence_before_daemon_sleeps = true;
  bool fence_after_completion = true;
  bool fence_before_client_sleeps = true;
  bool daemon_counts_taken = true;
};

struct Ends {
  uint64_t all = 0;
  uint64_t by_doorbell = 0;  // final states in which a doorbell woke the daemon, the client or both
  uint64_t wrong = 0;
};

Ends Explore(const RoundTrip& steps) {
  enum Place : uint8_t { kRequest, kHead, kCompletion, kCompletionHead, kDaemonAsleep, kClientAsleep };
  enum Register : uint8_t {
    kWakesDaemon,
    kPolled1,
    kRead1,
    kPolled2,
    kRead2,
    kTook1,
    kRequest1,
    kWakes1,
    kTook2,
    kRequest2,
    kWakes2
  };
  Program client{StoreTo(kRequest, 1, Order::kRelaxed), StoreTo(kHead, 1, steps.head)};
  if (steps.fence_after_submit) client.push_back(FullFence());
  client.push_back(LoadOf(kDaemonAsleep, kWakesDaemon, Order::kRelaxed));
  client.push_back(LoadOf(kCompletionHead, kPolled1, steps.poll));
  client.push_back(LoadOf(kCompletion, kRead1, Order::kRelaxed));
  client.push_back(StoreTo(kClientAsleep, 1, Order::kRelaxed));
  if (steps.fence_before_client_sleeps) client.push_back(FullFence());
  client.push_back(LoadOf(kCompletionHead, kPolled2, steps.poll));
  client.push_back(LoadOf(kCompletion, kRead2, Order::kRelaxed));

  Program daemon;
  const auto serve = [&](uint8_t took, uint8_t request, uint8_t wakes, const Value& completes,
                         const std::vector<uint8_t>& needs) {
    daemon.push_back(LoadOf(kHead, took, steps.poll));
    daemon.push_back(LoadOf(kRequest, request, Order::kRelaxed));
    daemon.push_back(StoreTo(kCompletion, completes, Order::kRelaxed, needs));
    daemon.push_back(StoreTo(kCompletionHead, completes, steps.completion_head, needs));
    if (steps.fence_after_completion) daemon.push_back(FullFence());
    daemon.push_back(LoadOf(kClientAsleep, wakes, Order::kRelaxed));
  };
  serve(kTook1, kRequest1, kWakes1, ValueIf(kTook1, 1), {kTook1});
  daemon.push_back(StoreTo(kDaemonAsleep, 1, Order::kRelaxed));
  if (steps.fence_before_daemon_sleeps) daemon.push_back(FullFence());
  const Value if_new = [&steps](const Registers& r) {
    const bool is_new = r[kTook1] == 0 || !steps.daemon_counts_taken;
    return r[kTook2] != 0 && is_new ? 1 + r[kTook1] : kNoStore;
  };
  serve(kTook2, kRequest2, kWakes2, if_new, {kTook1, kTook2});

  Ends ends;
  Machine({client, daemon}, [&](const Memory& memory, const Registers& r) {
    const bool first = r[kTook1] != 0;
    const bool second = !first && r[kTook2] != 0;
    const bool client_woken = (first && r[kWakes1] != 0) || (second && r[kWakes2] != 0);
    const bool polled = r[kPolled1] != 0 || r[kPolled2] != 0;
    const bool request_lost = !first && !second && r[kWakesDaemon] == 0;
    const bool completion_lost = (first || second) && !polled && !client_woken;
    const bool torn = (r[kPolled1] != 0 && r[kRead1] == 0) || (r[kPolled2] != 0 && r[kRead2] == 0) ||
                      (first && r[kRequest1] == 0) || (second && r[kRequest2] == 0);
    const bool doubled = memory[kCompletionHead] > 1;
    ++ends.all;
    ends.by_doorbell += r[kWakesDaemon] != 0 || client_woken ? 1 : 0;
    ends.wrong += request_lost || completion_lost || torn || doubled ? 1 : 0;
  }).Explore();
  return ends;
}

TEST(SpscQueueModelTest, ARequestIsServedOnceAndItsCompletionArrives) {
  const Ends ends = Explore(RoundTrip{});
  EXPECT_EQ(ends.wrong, 0u);
  EXPECT_GT(ends.by_doorbell, 0u);
  EXPECT_GT(ends.all, ends.by_doorbell) << "some runs need no doorbell";
}

TEST(SpscQueueModelTest, EachStepOfARoundTripIsNeeded) {
  EXPECT_GT(Explore({.head = Order::kRelaxed}).wrong, 0u);
  EXPECT_GT(Explore({.poll = Order::kRelaxed}).wrong, 0u);
  EXPECT_GT(Explore({.completion_head = Order::kRelaxed}).wrong, 0u);
  EXPECT_GT(Explore({.fence_after_submit = false}).wrong, 0u);
  EXPECT_GT(Explore({.fence_before_daemon_sleeps = false}).wrong, 0u);
  EXPECT_GT(Explore({.fence_after_completion = false}).wrong, 0u);
  EXPECT_GT(Explore({.fence_before_client_sleeps = false}).wrong, 0u);
  EXPECT_GT(Explore({.daemon_counts_taken = false}).wrong, 0u);
}

// One slot with an entry: the reader copies it; the writer waits for room to refill it, and may sleep meanwhile.
struct Room {
  bool copied_first = true;
  Order taken = Order::kRelease;
  Order poll = Order::kAcquire;
  bool fence_after_take = true;
  bool fence_before_writer_sleeps = true;
};

uint64_t WrongEnds(const Room& steps) {
  enum Place : uint8_t { kEntry, kTaken, kWriterAsleep };
  enum Register : uint8_t { kRead, kWakesWriter, kRoom1, kRoom2 };
  Program reader;
  const auto take = StoreTo(kTaken, 1, steps.taken);
  if (!steps.copied_first) reader.push_back(take);
  reader.push_back(LoadOf(kEntry, kRead, Order::kRelaxed));
  if (steps.copied_first) reader.push_back(take);
  if (steps.fence_after_take) reader.push_back(FullFence());
  reader.push_back(LoadOf(kWriterAsleep, kWakesWriter, Order::kRelaxed));

  Program writer{LoadOf(kTaken, kRoom1, steps.poll), StoreTo(kEntry, ValueIf(kRoom1, 2), Order::kRelaxed, {kRoom1}),
                 StoreTo(kWriterAsleep, 1, Order::kRelaxed)};
  if (steps.fence_before_writer_sleeps) writer.push_back(FullFence());
  writer.push_back(LoadOf(kTaken, kRoom2, Order::kAcquire));

  uint64_t wrong = 0;
  Memory before{};
  before[kEntry] = 1;
  Machine({reader, writer}, [&](const Memory&, const Registers& r) {
    const bool overwritten = r[kRead] != 1;
    const bool waits_in_vain = r[kRoom1] == 0 && r[kRoom2] == 0 && r[kWakesWriter] == 0;
    wrong += overwritten || waits_in_vain ? 1 : 0;
  }).Explore(before);
  return wrong;
}

TEST(SpscQueueModelTest, ASlotIsRefilledOnlyAfterItWasCopied) {
  EXPECT_EQ(WrongEnds(Room{}), 0u);
  EXPECT_GT(WrongEnds({.copied_first = false}), 0u);
  EXPECT_GT(WrongEnds({.taken = Order::kRelaxed}), 0u);
  EXPECT_GT(WrongEnds({.fence_after_take = false}), 0u);
  EXPECT_GT(WrongEnds({.fence_before_writer_sleeps = false}), 0u);
}

// The completion of a failed unwaited request is in its queue before `served` passes the request.
uint64_t WrongServed(Order served, Order poll) {
  enum Place : uint8_t { kFailure, kServed };
  enum Register : uint8_t { kSawServed, kSawFailure };
  uint64_t wrong = 0;
  Machine({{StoreTo(kFailure, 1, Order::kRelaxed), StoreTo(kServed, 1, served)},
           {LoadOf(kServed, kSawServed, poll), LoadOf(kFailure, kSawFailure, Order::kRelaxed)}},
          [&](const Memory&, const Registers& r) { wrong += r[kSawServed] != 0 && r[kSawFailure] == 0 ? 1 : 0; })
      .Explore();
  return wrong;
}

TEST(SpscQueueModelTest, AFailureIsVisibleWhenItsRequestCountsAsServed) {
  EXPECT_EQ(WrongServed(Order::kRelease, Order::kAcquire), 0u);
  EXPECT_GT(WrongServed(Order::kRelaxed, Order::kAcquire), 0u);
  EXPECT_GT(WrongServed(Order::kRelease, Order::kRelaxed), 0u);
}

// Two threads of one client: one announces its sleep and polls a last time; the other reads the completion and hands it
// over. Under one lock, reading and handing over are one step.
uint64_t WrongThreads(bool under_lock) {
  enum Place : uint8_t { kCompletionHead, kAsleep, kTaken, kHandedOver };
  enum Register : uint8_t { kWakes, kFound, kSawHead, kSawTaken, kSawDone };
  const Program daemon{StoreTo(kCompletionHead, 1, Order::kRelease), FullFence(),
                       LoadOf(kAsleep, kWakes, Order::kRelaxed)};
  Program reading{LoadOf(kCompletionHead, kFound, Order::kAcquire),
                  StoreTo(kTaken, ValueIf(kFound, 1), Order::kRelaxed, {kFound})};
  if (!under_lock) reading.push_back(StoreTo(kHandedOver, ValueIf(kFound, 1), Order::kRelease, {kFound}));
  const Program sleeping{StoreTo(kAsleep, 1, Order::kRelaxed), FullFence(),
                         LoadOf(kCompletionHead, kSawHead, Order::kAcquire), LoadOf(kTaken, kSawTaken, Order::kAcquire),
                         LoadOf(under_lock ? kTaken : kHandedOver, kSawDone, Order::kAcquire)};
  uint64_t wrong = 0;
  Machine({daemon, reading, sleeping}, [&](const Memory&, const Registers& r) {
    const bool sleeps = r[kSawHead] == r[kSawTaken] && r[kSawDone] == 0;
    wrong += sleeps && r[kWakes] == 0 ? 1 : 0;
  }).Explore();
  return wrong;
}

TEST(SpscQueueModelTest, AThreadSleepsOnlyAfterALastPollUnderTheLock) {
  EXPECT_EQ(WrongThreads(true), 0u);
  EXPECT_GT(WrongThreads(false), 0u);
}

// The reader is woken by a doorbell that it consumes early, and goes to sleep. The writer does not repeat the doorbell
// for the same sleep, so the reader must store asleep = 0 before it consumes anything.
uint64_t WrongDoorbell(bool awake_first) {
  enum Place : uint8_t { kHead, kAsleep };  // asleep starts at 1: the reader sleeps, and the writer has woken it once
  enum Register : uint8_t { kSawHead, kSawAsleep };
  Program reader;
  if (awake_first) reader = {StoreTo(kAsleep, 0, Order::kRelaxed), FullFence()};
  reader.push_back(LoadOf(kHead, kSawHead, Order::kAcquire));
  if (awake_first) {
    reader.push_back(StoreTo(kAsleep, 2, Order::kRelaxed));
    reader.push_back(FullFence());
    reader.push_back(LoadOf(kHead, kSawHead, Order::kAcquire));
  }
  const Program writer{StoreTo(kHead, 1, Order::kRelease), FullFence(), LoadOf(kAsleep, kSawAsleep, Order::kRelaxed)};
  uint64_t wrong = 0;
  Memory before{};
  before[kAsleep] = 1;
  Machine({reader, writer}, [&](const Memory&, const Registers& r) {
    const bool woken = r[kSawAsleep] == 2;  // the doorbell of sleep 1 has been sent
    wrong += r[kSawHead] == 0 && !woken ? 1 : 0;
  }).Explore(before);
  return wrong;
}

TEST(SpscQueueModelTest, AWokenSideIsAwakeBeforeItReads) {
  EXPECT_EQ(WrongDoorbell(true), 0u);
  EXPECT_GT(WrongDoorbell(false), 0u);
}

}  // namespace
}  // namespace arraybridge
