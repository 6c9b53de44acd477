// Every run of a client that asks in a mailbox and may give up, beside a broker that answers and may fall asleep
// (reordering_machine.h): a request is answered once, in the page or by the socket, and the answer in the page is
// whole.
//
// The steps are those of proto/boundary/mailbox_layout.h. Leaving one out that the argument needs must show.
#include <gtest/gtest.h>

#include <cstdint>

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
using machine::SwapAt;

enum Place : uint8_t { kRequest, kAsked, kAwaited, kAwake, kAnswer, kTaken };
enum Register : uint8_t {
  kSawAwake,
  kLooked,
  kGaveUp,
  kReadAnswer,
  kSawTaken,
  kSawAsked,
  kReadRequest,
  kInPage,
  kSawAsleep
};

struct Steps {
  Order asked = Order::kRelease;
  Order end = Order::kBoth;  // of EndLook
  Order taken = Order::kRelease;
  bool copied_first = true;  // the broker: before it says that it has taken the request
  bool swap = true;          // the broker: compares before it ends the look; otherwise it stores
  bool client_fence = true;
  bool broker_fence = true;
};

int Always(const Registers& /*r*/) { return 0; }

struct Outcome {
  uint64_t in_page = 0;
  uint64_t by_socket = 0;
  uint64_t woken = 0;
  uint64_t asked_again = 0;
  uint64_t wrong = 0;
};

// The client looks once, then gives up. The broker looks once, and answers what it finds; it finds it later, too, if it
// was woken or did not fall asleep.
Outcome Explore(const Steps& steps) {
  Outcome outcome;
  Program client{StoreTo(kAwaited, 1, Order::kRelaxed), StoreTo(kRequest, 1, Order::kRelaxed),
                 StoreTo(kAsked, 1, steps.asked)};
  if (steps.client_fence) client.push_back(FullFence());
  client.push_back(LoadOf(kAwake, kSawAwake, Order::kRelaxed));
  client.push_back(LoadOf(kAwaited, kLooked, Order::kAcquire));
  client.push_back(SwapAt(kAwaited, 1, Always, kGaveUp, steps.end));
  client.push_back(LoadOf(kAnswer, kReadAnswer, Order::kRelaxed));
  client.push_back(LoadOf(kTaken, kSawTaken, Order::kAcquire));
  // Another thread's request; what it asks and hears is as the first.
  const auto if_free = [](const Registers& r) { return r[kGaveUp] == 1 && r[kSawTaken] == 1 ? 2 : kNoStore; };
  client.push_back(StoreTo(kRequest, if_free, Order::kRelaxed, {kGaveUp, kSawTaken}));

  const auto if_asked = [](const Registers& r) { return r[kSawAsked] == 1 ? 1 : kNoStore; };
  const auto end_if_asked = [](const Registers& r) { return r[kSawAsked] == 1 ? 0 : kNoStore; };
  const auto take = StoreTo(kTaken, if_asked, steps.taken, {kSawAsked});
  Program broker{LoadOf(kAsked, kSawAsked, Order::kAcquire)};
  if (!steps.copied_first) broker.push_back(take);
  broker.push_back(LoadOf(kRequest, kReadRequest, Order::kRelaxed));
  if (steps.copied_first) broker.push_back(take);
  broker.push_back(StoreTo(kAnswer, if_asked, Order::kRelaxed, {kSawAsked}));
  if (steps.swap) {
    broker.push_back(SwapAt(kAwaited, 1, end_if_asked, kInPage, steps.end, {kSawAsked}));
  } else {
    broker.push_back(LoadOf(kAwaited, kInPage, Order::kRelaxed));
    broker.push_back(StoreTo(kAwaited, end_if_asked, Order::kRelease, {kSawAsked}));
  }
  broker.push_back(StoreTo(kAwake, 0, Order::kRelaxed));
  if (steps.broker_fence) broker.push_back(FullFence());
  broker.push_back(LoadOf(kAsked, kSawAsleep, Order::kRelaxed));

  const auto judge = [&](const Memory& memory, const Registers& r) {
    const bool found = r[kSawAsked] == 1;
    const bool in_page = found && r[kInPage] == 1;
    const bool by_socket = found && !in_page;
    const bool takes_it = r[kGaveUp] == 0;  // what is in the page
    outcome.in_page += takes_it ? 1 : 0;
    outcome.by_socket += by_socket ? 1 : 0;
    const bool woken = r[kSawAwake] == 0;
    outcome.woken += woken && !found ? 1 : 0;
    outcome.asked_again += memory[kRequest] == 2 ? 1 : 0;
    const bool one_way = !found || in_page == takes_it;
    const bool whole = (!takes_it || r[kReadAnswer] == 1) && (!found || r[kReadRequest] == 1);
    const bool heard = found || woken || r[kSawAsleep] == 1;
    if (!one_way || !whole || !heard) ++outcome.wrong;
  };
  Memory before{};
  before[kAwake] = 1;
  Machine({client, broker}, judge).Explore(before);
  return outcome;
}

TEST(MailboxModelTest, ARequestIsAnsweredOnceByOneWay) {
  const Outcome outcome = Explore({});
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_GT(outcome.in_page, 0u);
  EXPECT_GT(outcome.by_socket, 0u);
  EXPECT_GT(outcome.woken, 0u);
  EXPECT_GT(outcome.asked_again, 0u);
}

TEST(MailboxModelTest, EveryStepOfTheArgumentIsNeeded) {
  EXPECT_GT(Explore({.asked = Order::kRelaxed}).wrong, 0u) << "a request is read before it is written";
  EXPECT_GT(Explore({.end = Order::kRelaxed}).wrong, 0u) << "an answer is read before it is written";
  EXPECT_GT(Explore({.taken = Order::kRelaxed}).wrong, 0u) << "it is overwritten before it is read";
  EXPECT_GT(Explore({.copied_first = false}).wrong, 0u) << "the same";
  EXPECT_GT(Explore({.swap = false}).wrong, 0u) << "it comes twice, or not at all";
  EXPECT_GT(Explore({.client_fence = false}).wrong, 0u) << "the fence of mailbox::Ask";
  EXPECT_GT(Explore({.broker_fence = false}).wrong, 0u) << "the fence of mailbox::FallAsleep";
}

}  // namespace
}  // namespace arraybridge
