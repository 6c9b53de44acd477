// The receiving end of a road beside the broker's side of it, in one process: what happens when the road ends in the
// middle of a step.
#include <sys/socket.h>

#include <chrono>

#include <gtest/gtest.h>

#include "client/taken_road.h"
#include "daemon/memory/road.h"
#include "tests/unit/client/mapped_road.h"

namespace arraybridge {
namespace {

using Outcome = TakenRoad::Outcome;

class TakenRoadTest : public ::testing::Test {
 protected:
  TakenRoadTest()
      : road_(*Road::Create(4, 1)),
        sent_(MapRoad(*road_, RoadSide::kSender)),
        taken_(MapRoad(*road_, RoadSide::kReceiver)),
        lifeline_(Socket()) {
    road_->Open(0);
  }

  static UniqueFd Socket() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    static UniqueFd other;
    other.reset(ends[1]);
    return UniqueFd(ends[0]);
  }
  void Put(uint64_t arena) {
    auto& page = *static_cast<road::SentPage*>(sent_->own());
    road::Message said;
    said.arena = arena;
    road::Write(road::EntriesOf(page)[page.head % 4], said, "");
    road::Pass(page.head, page.head + 1, sent_->sign());
  }
  // The arenas of what the broker takes off the road.
  std::vector<uint64_t> End() {
    std::vector<uint64_t> queued;
    road_->Revoke([&](const road::Message& entry) { return queued.push_back(entry.arena), true; }, [](bool) {});
    return queued;
  }
  Outcome Take(const std::function<bool(const road::Message&)>& has = [](const road::Message&) { return true; }) {
    return taken_.Take(lifeline_, 0, has, &entry_);
  }

  const std::unique_ptr<Road> road_;
  const std::unique_ptr<RoadPages> sent_;
  TakenRoad taken_;
  Lifeline lifeline_;
  road::Message entry_;
};

TEST_F(TakenRoadTest, TakesInOrder) {
  EXPECT_EQ(Take(), Outcome::kEmpty);
  Put(1);
  Put(2);
  EXPECT_EQ(Take(), Outcome::kTaken);
  EXPECT_EQ(entry_.arena, 1u);
  EXPECT_EQ(Take([](const auto&) { return false; }), Outcome::kLacksArena);
  EXPECT_EQ(Take(), Outcome::kTaken) << "it was not taken";
  EXPECT_EQ(entry_.arena, 2u);
  EXPECT_EQ(Take(), Outcome::kEmpty);
}

TEST_F(TakenRoadTest, WhatTheBrokerTookIsNotTaken) {
  Put(1);
  Put(2);
  EXPECT_EQ(Take(), Outcome::kTaken);
  std::vector<uint64_t> queued;
  const auto ends_meanwhile = [&](const road::Message&) { return queued = End(), true; };
  EXPECT_EQ(Take(ends_meanwhile), Outcome::kEnded) << "the broker saw it standing";
  EXPECT_EQ(queued, std::vector<uint64_t>{2});
  EXPECT_EQ(Take(), Outcome::kEnded);
}

TEST_F(TakenRoadTest, WhatComesByCallsComesFirst) {
  Put(1);
  road_->AddCall();
  EXPECT_EQ(Take(), Outcome::kByCalls);
  EXPECT_EQ(taken_.Take(
                lifeline_, 1, [](const auto&) { return true; }, &entry_),
            Outcome::kTaken);
}

TEST_F(TakenRoadTest, NonsenseIsNotTaken) {
  auto& page = *static_cast<road::SentPage*>(sent_->own());
  page.head = 5;
  EXPECT_EQ(Take(), Outcome::kNonsense);
  page.head = 1;
  road::EntriesOf(page)[0].words[0] = UINT64_MAX;
  EXPECT_EQ(Take(), Outcome::kNonsense);
}

TEST_F(TakenRoadTest, AWaitEndsWithItsDeadlineOrTheRoad) {
  const Lifeline::Interrupted never;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  EXPECT_EQ(taken_.AwaitEntry(0, {lifeline_, until, {}, never}).code(), Code::kDeadlineExceeded);
  const Lifeline::Interrupted always = [] { return true; };
  EXPECT_EQ(taken_.AwaitEntry(0, {lifeline_, {}, {}, always}).code(), Code::kCancelled);
  EXPECT_TRUE(End().empty());
  EXPECT_TRUE(taken_.AwaitEntry(0, {lifeline_, {}, {}, never}).ok());
  EXPECT_EQ(Take(), Outcome::kEnded);
}

TEST_F(TakenRoadTest, PagesOfAnotherSizeAreNoRoad) {
  const std::unique_ptr<Road> other = *Road::Create(5, 2);
  const auto part = [&](Road& of, RoadPart which) { return *of.Export(RoadSide::kReceiver, which); };
  RoadPages::Files files{part(*other, RoadPart::kOwn), part(*other, RoadPart::kOther), part(*other, RoadPart::kSign),
                         part(*other, RoadPart::kBell), part(*other, RoadPart::kOtherBell)};
  EXPECT_FALSE(RoadPages::Map(true, std::move(files)).ok()) << "a receiver's, taken for a sender's";
}

}  // namespace
}  // namespace arraybridge
