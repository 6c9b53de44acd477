// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/waiting_line.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace arraybridge::daemon {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr SessionId kAlice{1};
constexpr SessionId kBob{2};

class WaitingLineTest : public ::testing::Test {
 protected:
  // Waits for `need` bytes and takes them from free_.
  Waiter ForMemory(SessionId session, std::string who, int need, milliseconds patience = hours(1)) {
    Waiter waiter;
    waiter.session = session;
    waiter.deadline = Clock::now() + patience;
    waiter.retry = [this, who, need](bool first) -> Deliver {
      tried_.push_back(who);
      if (!first || free_ < need) return nullptr;
      free_ -= need;
      return [this, who] { answered_.push_back(who); };
    };
    waiter.expire = [this, who] {
      expired_.push_back(who);
      expired_one_.set_value();
    };
    return waiter;
  }

  Waiter ForName(SessionId session, std::string who, milliseconds patience = hours(1)) {
    Waiter waiter = ForMemory(session, std::move(who), 1, patience);
    return waiter;
  }

  // The number of `waiters` for one name, each looking for `names` names per try, that the publishing thread tries
  // itself. All of them are tried.
  size_t TriedByThePublish(size_t waiters, size_t names) {
    std::atomic<size_t> here{0}, delivered{0};
    std::promise<void> all;
    const auto publisher = std::this_thread::get_id();
    std::atomic<bool> published{false};
    for (size_t i = 0; i < waiters; ++i) {
      Waiter waiter = ForName(kAlice, "");
      waiter.names = names;
      waiter.retry = [&](bool) -> Deliver {
        if (!published) return nullptr;
        if (std::this_thread::get_id() == publisher) ++here;
        return [&] {
          if (++delivered == waiters) all.set_value();
        };
      };
      EXPECT_TRUE(line_.WaitForNames(7, "n", std::array{std::string_view("x")}, std::move(waiter)).ok());
    }
    published = true;
    line_.NamePublished(7, "n", "x");
    all.get_future().get();
    return here;
  }

  Limits limits_;
  int free_ = 0;
  std::vector<std::string> tried_, answered_, expired_;
  std::promise<void> expired_one_;
  WaitingLine line_{limits_};
};

using Names = std::vector<std::string>;

TEST_F(WaitingLineTest, FirstComeFirstServedInsideANamespace) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "large", 10)).ok());
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kBob, "small", 1)).ok());
  free_ = 5;
  line_.ServeMemory();
  EXPECT_EQ(answered_, Names{}) << "the small one must not overtake";
  free_ = 11;
  line_.ServeMemory();
  EXPECT_EQ(answered_, (Names{"large", "small"}));
  EXPECT_EQ(line_.waiting(), 0u);
}

TEST_F(WaitingLineTest, NamespacesDoNotWaitForEachOther) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "large", 10)).ok());
  ASSERT_TRUE(line_.WaitForMemory(7, "m", ForMemory(kBob, "other namespace", 1)).ok());
  ASSERT_TRUE(line_.WaitForMemory(8, "n", ForMemory(kBob, "other user", 1)).ok());
  free_ = 2;
  line_.ServeMemory();
  EXPECT_EQ(std::set<std::string>(answered_.begin(), answered_.end()),
            (std::set<std::string>{"other namespace", "other user"}));
}

TEST_F(WaitingLineTest, WhoStandsBehindIsAskedWhetherItsOwnMemoryCameBack) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "large", 10)).ok());
  Waiter own = ForMemory(kBob, "own", 0);
  own.retry = [this](bool first) -> Deliver {
    EXPECT_FALSE(first);
    return [this] {
      EXPECT_EQ(line_.waiting(), 1u) << "an answered waiter no longer waits";
      answered_.push_back("own");
    };
  };
  ASSERT_TRUE(line_.WaitForMemory(7, "n", std::move(own)).ok());
  line_.ServeMemory();
  EXPECT_EQ(answered_, Names{"own"});
}

TEST_F(WaitingLineTest, TheDeadlineAnswers) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "alice", 1, milliseconds(5))).ok());
  expired_one_.get_future().get();
  EXPECT_EQ(expired_, Names{"alice"});
  free_ = 1;
  line_.ServeMemory();
  EXPECT_EQ(answered_, Names{}) << "answered twice";
  EXPECT_EQ(line_.waiting(), 0u);
}

TEST_F(WaitingLineTest, ASlowWaiterIsToldOnceAndKeepsWaiting) {
  std::atomic<int> told{0};
  std::promise<void> slow;
  const auto counted = [&](std::string who, milliseconds after) {
    Waiter waiter = ForMemory(kAlice, std::move(who), 1, hours(1));
    waiter.slow_after = after;
    waiter.slow = [&] {
      if (++told == 1) slow.set_value();
    };
    return waiter;
  };
  ASSERT_TRUE(line_.WaitForMemory(7, "n", counted("slow", milliseconds(5))).ok());
  const auto quick = line_.WaitForMemory(7, "m", counted("answered before", hours(1)));
  ASSERT_TRUE(quick.ok());
  line_.Cancel(*quick);
  slow.get_future().get();
  EXPECT_EQ(line_.waiting(), 1u);
  line_.ExpireAll();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(expired_, Names{"slow"});
}

TEST_F(WaitingLineTest, AnEarlierDeadlineIsNotHiddenByALaterOne) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "patient", 1)).ok());
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "hasty", 1, milliseconds(5))).ok());
  expired_one_.get_future().get();
  EXPECT_EQ(expired_, Names{"hasty"});
  EXPECT_EQ(line_.waiting(), 1u);
}

TEST_F(WaitingLineTest, WithoutADeadlineItIsTriedOnce) {
  Waiter once = ForMemory(kAlice, "once", 1);
  once.deadline.reset();
  ASSERT_TRUE(line_.WaitForMemory(7, "n", std::move(once)).ok());
  line_.ServeMemory();
  EXPECT_EQ(tried_, Names{"once"});
  EXPECT_EQ(expired_, Names{"once"});
  EXPECT_FALSE(line_.wanted(7));
}

TEST_F(WaitingLineTest, MemoryIsWantedFromTheFirstRefusalToTheAnswer) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "alice", 1)).ok());
  EXPECT_FALSE(line_.wanted(7));
  line_.ServeMemory();
  EXPECT_TRUE(line_.wanted(7));
  free_ = 1;
  line_.ServeMemory();
  EXPECT_FALSE(line_.wanted(7));
}

TEST_F(WaitingLineTest, WhoWasCancelledOrHasGoneIsNotTried) {
  const auto alice = line_.WaitForMemory(7, "n", ForMemory(kAlice, "alice", 1));
  ASSERT_TRUE(alice.ok());
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kBob, "bob", 1)).ok());
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "again", 1)).ok());
  line_.ServeMemory();
  tried_.clear();
  line_.Cancel(*alice);
  line_.DropSession(kBob);
  free_ = 3;
  line_.ServeMemory();
  EXPECT_EQ(tried_, Names{"again"});
  EXPECT_FALSE(line_.wanted(7));
  EXPECT_EQ(line_.waiting(), 0u);
}

TEST_F(WaitingLineTest, ItDropsTheWaiterOfWhoWasCancelled) {
  auto held = std::make_shared<int>(0);
  Waiter waiter = ForMemory(kAlice, "alice", 1);
  waiter.retry = [held](bool) { return nullptr; };
  const auto id = line_.WaitForMemory(7, "n", std::move(waiter));
  ASSERT_TRUE(id.ok());
  ASSERT_EQ(held.use_count(), 2);
  line_.Cancel(*id);
  EXPECT_EQ(held.use_count(), 1) << "a caller may wait for the destruction of its reply";
}

TEST_F(WaitingLineTest, TheLimitOfQueuedRequestsNamesItself) {
  Limits limits;
  limits.requests_per_session = 2;
  WaitingLine line(limits);
  ASSERT_TRUE(line.WaitForMemory(7, "n", ForMemory(kAlice, "1", 1)).ok());
  ASSERT_TRUE(line.WaitForMemory(7, "n", ForMemory(kAlice, "2", 1)).ok());
  const auto third = line.WaitForMemory(7, "n", ForMemory(kAlice, "3", 1));
  ASSERT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_NE(third.status().message().find("has 2 requests waiting, the most is 2"), std::string::npos);
  EXPECT_TRUE(line.WaitForMemory(7, "n", ForMemory(kBob, "other", 1)).ok());
}

TEST_F(WaitingLineTest, WhatOneUserMayHaveWaitingIsLimitedOverItsSessions) {
  Limits limits;
  limits.requests_per_uid = 2;
  WaitingLine line(limits);
  const auto of = [&](SessionId session, uint32_t uid) {
    Waiter waiter = ForMemory(session, "", 1);
    waiter.uid = uid;
    return line.WaitForMemory(uid, "n", std::move(waiter));
  };
  const auto first = of(kAlice, 7);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(of(kBob, 7).ok());
  const auto third = of(SessionId{3}, 7);
  ASSERT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(third.status().reason(), "QUEUED_REQUESTS");
  EXPECT_NE(third.status().message().find("limits.requests_per_uid 2"), std::string::npos);
  EXPECT_TRUE(of(SessionId{4}, 8).ok()) << "another user";
  line.Cancel(*first);
  EXPECT_TRUE(of(SessionId{3}, 7).ok()) << "its place is free again";
}

TEST_F(WaitingLineTest, TheBytesOfRequestsThatWaitAreTheirUsers) {
  Limits limits;
  limits.requests_per_uid = 32;  // 4 KiB each
  WaitingLine line(limits);
  const std::string name(240, 'n');
  const std::vector<std::string_view> names(64, name);
  const auto of = [&](SessionId session, uint32_t uid) {
    Waiter waiter = ForName(session, "");
    waiter.uid = uid;
    waiter.bytes = 64 * name.size();
    return line.WaitForNames(uid, "n", names, std::move(waiter));
  };
  ASSERT_TRUE(of(kAlice, 7).ok());
  ASSERT_TRUE(of(kBob, 7).ok());
  const auto third = of(SessionId{3}, 7);
  ASSERT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(third.status().reason(), "QUEUED_BYTES");
  EXPECT_NE(third.status().message().find("limits.requests_per_uid 32"), std::string::npos);
  EXPECT_TRUE(of(SessionId{4}, 8).ok()) << "another user";
  line.DropSession(kAlice);
  EXPECT_TRUE(of(SessionId{3}, 7).ok()) << "the end of a session gives its bytes back";
}

TEST_F(WaitingLineTest, ANameThatCameBeforeTheWaitIsFoundByTheFirstTry) {
  free_ = 1;
  const auto id = line_.WaitForNames(7, "n", std::array{std::string_view("x")}, ForName(kAlice, "alice"));
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(*id, WaiterId{});
  EXPECT_EQ(answered_, Names{"alice"});
}

TEST_F(WaitingLineTest, OnlyWhoWaitsForThatNameIsTried) {
  ASSERT_TRUE(line_.WaitForNames(7, "n", std::array{std::string_view("x")}, ForName(kAlice, "x")).ok());
  ASSERT_TRUE(line_.WaitForNames(7, "n", std::array{std::string_view("y")}, ForName(kBob, "y")).ok());
  tried_.clear();
  free_ = 2;
  line_.NamePublished(7, "m", "x");
  line_.NamePublished(7, "n", "z");
  EXPECT_EQ(tried_, Names{});
  line_.NamePublished(7, "n", "x");
  EXPECT_EQ(answered_, Names{"x"});
}

TEST_F(WaitingLineTest, TheSameNameTwiceInOneRequestIsOneWait) {
  ASSERT_TRUE(line_.WaitForNames(7, "n", std::array<std::string_view, 2>{"x", "x"}, ForName(kAlice, "alice")).ok());
  free_ = 1;
  line_.NamePublished(7, "n", "x");
  EXPECT_EQ(answered_, Names{"alice"});
  EXPECT_EQ(line_.waiting(), 0u);
}

// An event during a retry is not lost: the retry runs once more.
TEST_F(WaitingLineTest, AnEventDuringARetryIsNotLost) {
  std::atomic<int> answers{0};
  Waiter waiter = ForName(kAlice, "alice");
  bool second = false;
  waiter.retry = [&, this](bool) -> Deliver {
    if (second) return [&answers] { ++answers; };
    second = true;
    line_.NamePublished(7, "n", "x");  // as if another thread had published it after this try had looked
    return nullptr;
  };
  const auto id = line_.WaitForNames(7, "n", std::array{std::string_view("x")}, std::move(waiter));
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(answers.load(), 1);
}

TEST_F(WaitingLineTest, ManyPublishersAndWaitersLoseNoWakeUp) {
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<bool> there{false};
    std::promise<void> answered;
    Waiter waiter;
    waiter.session = kAlice;
    waiter.deadline = Clock::now() + hours(1);
    waiter.retry = [&](bool) -> Deliver {
      if (!there.load()) return nullptr;
      return [&answered] { answered.set_value(); };
    };
    waiter.expire = [] {};
    std::thread publisher([&] {
      there.store(true);
      line_.NamePublished(7, "n", "x");
    });
    ASSERT_TRUE(line_.WaitForNames(7, "n", std::array{std::string_view("x")}, std::move(waiter)).ok());
    answered.get_future().get();
    publisher.join();
  }
  EXPECT_EQ(line_.waiting(), 0u);
}

// Two users may have namespaces of the same name.
TEST_F(WaitingLineTest, AnotherUsersNameWakesNobody) {
  ASSERT_TRUE(line_.WaitForNames(8, "n", std::array{std::string_view("x")}, ForName(kBob, "bob")).ok());
  tried_.clear();
  line_.NamePublished(7, "n", "x");
  EXPECT_EQ(tried_, Names{});
}

// A waiter for several names waits for the missing one; the others may be published again and again.
TEST_F(WaitingLineTest, AWaiterIsTriedWhenTheNameComesThatItLacks) {
  std::string missing = "x";
  Waiter waiter = ForName(kAlice, "alice");
  waiter.misses = [&] { return std::string_view(missing); };
  ASSERT_TRUE(line_.WaitForNames(7, "n", std::array<std::string_view, 2>{"x", "y"}, std::move(waiter)).ok());
  tried_.clear();
  line_.NamePublished(7, "n", "y");
  EXPECT_EQ(tried_, Names{});
  missing = "y";
  line_.NamePublished(7, "n", "x");
  EXPECT_EQ(tried_.size(), 2u) << "once more, because the name may have come before the waiter was enlisted";
  tried_.clear();
  line_.NamePublished(7, "n", "x");
  EXPECT_EQ(tried_, Names{});
  free_ = 1;
  line_.NamePublished(7, "n", "y");
  EXPECT_EQ(answered_, Names{"alice"});
  EXPECT_EQ(line_.waiting(), 0u);
}

// A name that is published while a waiter is being enlisted for it is not missed.
TEST_F(WaitingLineTest, WhatCameBeforeItWasWaitedForIsFound) {
  std::string missing = "x";
  bool is_there = false;
  bool answered = false;
  Waiter waiter = ForName(kAlice, "alice");
  waiter.retry = [&](bool) -> Deliver {
    if (is_there) return [&] { answered = true; };
    return nullptr;
  };
  waiter.misses = [&] {
    if (missing == "y") is_there = true;  // as if another thread had published it after this try had looked
    return std::string_view(missing);
  };
  ASSERT_TRUE(line_.WaitForNames(7, "n", std::array{std::string_view("x")}, std::move(waiter)).ok());
  missing = "y";
  line_.NamePublished(7, "n", "x");
  EXPECT_TRUE(answered);
}

// A publish tries a few waiters; another thread tries the others.
TEST_F(WaitingLineTest, APublishTriesAFewAndLeavesTheOthersToAThread) {
  EXPECT_LE(TriedByThePublish(60, 1), 8u);
  EXPECT_EQ(TriedByThePublish(20, 256), 1u) << "a try that looks for many names is expensive";
}

TEST_F(WaitingLineTest, WhatOneUserLacksOfItsOwnOthersAreNotAskedFor) {
  Waiter waiter = ForMemory(kAlice, "alice", 1);
  Lack lack = Lack::kOwn;
  waiter.lack = [&] { return lack; };
  ASSERT_TRUE(line_.WaitForMemory(7, "n", std::move(waiter)).ok());
  line_.ServeMemory();
  EXPECT_TRUE(line_.wanted(7));
  EXPECT_FALSE(line_.wanted(8));
  lack = Lack::kShared;
  line_.ServeMemory();
  EXPECT_TRUE(line_.wanted(8));
  lack = Lack::kOwn;
  line_.ServeMemory();
  EXPECT_FALSE(line_.wanted(8));
  line_.DropSession(kAlice);
  EXPECT_FALSE(line_.wanted(7));
}

// A user's queue does not delay another user, who may even arrive while it is served.
TEST_F(WaitingLineTest, UsersAreServedInTurn) {
  for (const char* who : {"1", "2", "3"}) ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, who, 0)).ok());
  Waiter brings_another = ForMemory(kAlice, "", 0);
  brings_another.retry = [this](bool) -> Deliver {
    EXPECT_TRUE(line_.WaitForMemory(9, "n", ForMemory(kBob, "came meanwhile", 0)).ok());
    return [this] { answered_.push_back("other namespace"); };
  };
  ASSERT_TRUE(line_.WaitForMemory(7, "m", std::move(brings_another)).ok());
  ASSERT_TRUE(line_.WaitForMemory(8, "n", ForMemory(kBob, "other user", 0)).ok());
  line_.ServeMemory();
  EXPECT_EQ(answered_, (Names{"other namespace", "other user", "1", "came meanwhile", "2", "3"}));
}

// Inside a namespace the lanes keep the order: an entry behind one of the other lane is tried after it.
TEST_F(WaitingLineTest, NobodyOvertakesOneOfTheOtherLane) {
  const auto wait = [&](const char* ns, const char* who, int need, Lane lane) {
    Waiter waiter = ForMemory(kAlice, who, need);
    waiter.lane = lane;
    ASSERT_TRUE(line_.WaitForMemory(7, ns, std::move(waiter)).ok());
  };
  wait("n", "large", 10, Lane::kLong);
  wait("n", "behind", 1, Lane::kShort);
  wait("n", "large behind", 1, Lane::kLong);
  wait("m", "elsewhere", 1, Lane::kShort);
  free_ = 13;
  line_.ServeMemory(Lane::kShort);
  EXPECT_EQ(tried_, Names{"elsewhere"});
  EXPECT_TRUE(line_.ServeMemory(Lane::kLong)) << "the other lane may go on";
  EXPECT_EQ(answered_, (Names{"elsewhere", "large"}));
  EXPECT_TRUE(line_.ServeMemory(Lane::kShort));
  EXPECT_EQ(answered_, (Names{"elsewhere", "large", "behind"}));
  EXPECT_FALSE(line_.ServeMemory(Lane::kLong)) << "no waiter of the other lane is left";
  EXPECT_EQ(answered_, (Names{"elsewhere", "large", "behind", "large behind"}));
}

TEST_F(WaitingLineTest, OneOfTheOtherLaneThatWaitsOnStopsNobodyFromBeingTried) {
  Waiter large = ForMemory(kAlice, "large", 10);
  large.lane = Lane::kLong;
  ASSERT_TRUE(line_.WaitForMemory(7, "n", std::move(large)).ok());
  bool first = true;
  Waiter behind = ForMemory(kBob, "behind", 1);
  behind.retry = [&](bool is_first) -> Deliver {
    first = is_first;
    return [this] { answered_.push_back("behind"); };
  };
  ASSERT_TRUE(line_.WaitForMemory(7, "n", std::move(behind)).ok());
  line_.ServeMemory(Lane::kShort);
  EXPECT_EQ(answered_, Names{}) << "large was not tried yet";
  EXPECT_TRUE(line_.ServeMemory(Lane::kLong));
  line_.ServeMemory(Lane::kShort);
  EXPECT_EQ(answered_, Names{"behind"});
  EXPECT_FALSE(first) << "the other waiter is the first";
}

TEST_F(WaitingLineTest, DrainingExpiresEverybodyOnce) {
  ASSERT_TRUE(line_.WaitForMemory(7, "n", ForMemory(kAlice, "alice", 1)).ok());
  line_.ExpireAll();
  line_.ExpireAll();
  EXPECT_EQ(expired_, Names{"alice"});
  EXPECT_EQ(line_.waiting(), 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
