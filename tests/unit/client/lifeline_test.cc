// SPDX-License-Identifier: Apache-2.0
// The lifeline with a test's server on a socket pair, including behaviour that only a broken broker shows.
#include "client/lifeline/lifeline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "tests/unit/client/fake_broker.h"

namespace arraybridge {
namespace {

using std::chrono::hours;
using std::chrono::steady_clock;

class LifelineTest : public ::testing::Test {
 protected:
  LifelineTest() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
    lifeline_ = std::make_unique<Lifeline>(UniqueFd(pair[0]));
    broker_ = std::make_unique<FakeBroker>(pair[1]);
  }
  static Deadline Far() { return steady_clock::now() + hours(1); }
  // A connection whose callers are interrupted at their third check.
  void Interruptible() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
    lifeline_ = std::make_unique<Lifeline>(UniqueFd(pair[0]), [this] { return ++asked_ == 3; });
    broker_ = std::make_unique<FakeBroker>(pair[1]);
  }

  std::atomic<int> asked_{0};

  std::unique_ptr<Lifeline> lifeline_;
  std::unique_ptr<FakeBroker> broker_;
};

TEST_F(LifelineTest, AnInterruptedWaitEndsAndItsAnswerIsGivenBack) {
  Interruptible();
  std::string late;
  const auto answer =
      lifeline_->Call(Verb::kAcquire, "a", Far(), [&](const Result<Answer>& came) { late = came->payload; });
  EXPECT_EQ(answer.status().code(), Code::kCancelled);
  EXPECT_EQ(answer.status().reason(), Lifeline::kUnanswered);
  EXPECT_EQ(asked_, 3);
  broker_->Answer(broker_->Next(), "granted");
  lifeline_->ReadArrived();
  EXPECT_EQ(late, "granted");
}

TEST_F(LifelineTest, ABrokerThatTakesNothingDoesNotHoldAnInterruptedCaller) {
  Interruptible();
  const std::string large(60000, 'x');
  while (lifeline_->Post(Verb::kRelease, large).ok()) {
  }
  const auto answer = lifeline_->Call(Verb::kList, large, Far());
  EXPECT_EQ(answer.status().code(), Code::kCancelled);
  EXPECT_NE(answer.status().reason(), Lifeline::kUnanswered) << "it was not even sent";
}

TEST_F(LifelineTest, APostWithADeadlineWaitsUntilTheSocketTakesIt) {
  const std::string large(60000, 'x');
  while (lifeline_->Post(Verb::kRelease, large).ok()) {
  }
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_EQ(lifeline_->Post(Verb::kCloseChannel, large, soon).code(), Code::kDeadlineExceeded);
  EXPECT_GE(std::chrono::steady_clock::now(), soon);
  std::thread poster([&] { EXPECT_TRUE(lifeline_->Post(Verb::kCloseChannel, large, Far()).ok()); });
  Request request = broker_->Next();
  while (request.header.verb == static_cast<uint16_t>(Verb::kRelease)) request = broker_->Next();
  EXPECT_EQ(request.header.verb, static_cast<uint16_t>(Verb::kCloseChannel));
  EXPECT_EQ(request.header.flags, 0) << "a frame that a daemon has read is lost with it, unless it is sent again";
  poster.join();
}

TEST_F(LifelineTest, APostReadsTheAnswersToEarlierOnes) {
  for (size_t i = 0; i < 2 * Lifeline::kUnawaitedMax; ++i) {
    ASSERT_TRUE(lifeline_->Post(Verb::kRelease, "a lease").ok()) << i;
    broker_->Answer(broker_->Next(), "");
  }
}

TEST_F(LifelineTest, WhatIsSentAgainKeepsItsOrder) {
  for (const char* const text : {"0", "1", "2", "3", "4", "5", "6", "7"}) {
    ASSERT_TRUE(lifeline_->Post(Verb::kMapped, text).ok());
    broker_->Next();  // by a daemon that ended
  }
  std::thread caller([&] { EXPECT_TRUE(lifeline_->Call(Verb::kPublish, "8", Far()).ok()); });
  broker_->Next();
  Request recovered;
  recovered.header = {static_cast<uint16_t>(Verb::kRecovered), kFrameNoReply, 0, 7};
  broker_->Answer(recovered, "");
  EXPECT_EQ(broker_->Next().header.flags, kFrameNoReply | kFrameAgain);
  std::string order;
  for (Request next = broker_->Next(); next.header.flags == kFrameAgain; next = broker_->Next()) {
    order += next.payload;
    broker_->Answer(next, "");
  }
  EXPECT_EQ(order, "012345678");
  caller.join();
}

TEST_F(LifelineTest, AnswersMayComeInAnyOrder) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 50;
  std::thread server([&] {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Request> all;
      for (int i = 0; i < kThreads; ++i) all.push_back(broker_->Next());
      for (auto one = all.rbegin(); one != all.rend(); ++one) broker_->Answer(*one, "to " + one->payload);
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < kThreads; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string mine = std::to_string(i * kRounds + round);
        auto answer = lifeline_->Call(Verb::kList, mine, Far());
        ASSERT_TRUE(answer.ok()) << answer.status().ToString();
        EXPECT_EQ(answer->payload, "to " + mine);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  server.join();
}

TEST_F(LifelineTest, ALateAnswerIsGivenToItsLateHandler) {
  std::string late;
  bool descriptor = false;
  auto answer = lifeline_->Call(Verb::kAcquire, "early", steady_clock::now(), [&](Result<Answer> came) {
    ASSERT_TRUE(came.ok());
    late = came->payload;
    descriptor = came->descriptor.valid();
  });
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  const Request request = broker_->Next();
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  broker_->Answer(request, "a lease", file.get());
  lifeline_->ReadArrived();
  EXPECT_EQ(late, "a lease");
  EXPECT_TRUE(descriptor);
  EXPECT_FALSE(lifeline_->lost());
}

TEST_F(LifelineTest, AnAnswerNobodyWaitsForIsTakenBeforeTheNext) {
  std::string order;
  ASSERT_TRUE(
      lifeline_->Ask(Verb::kRelease, "first", [&](const Result<Answer>& came) { order += came->payload; }).ok());
  std::thread server([&] {
    broker_->Answer(broker_->Next(), "late ");
    broker_->Answer(broker_->Next(), "awaited");
  });
  auto answer = lifeline_->Call(Verb::kRelease, "second", Far());
  server.join();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(order + answer->payload, "late awaited");
}

TEST_F(LifelineTest, ADescriptorComesWithItsAnswer) {
  std::thread server([&] {
    UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    broker_->Answer(broker_->Next(), "here", file.get());
  });
  auto answer = lifeline_->Call(Verb::kExport, "", Far());
  server.join();
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->descriptor.valid());
  EXPECT_EQ(::fcntl(answer->descriptor.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(LifelineTest, TheBrokersErrorIsTheCallers) {
  std::thread server([&] {
    const Request request = broker_->Next();
    broker_->Send({request.header.verb, 0, 5, request.header.request}, std::string("\x0a\x04gone\x12\x01X", 9));
  });
  const auto answer = lifeline_->Call(Verb::kWithdraw, "", Far());
  server.join();
  EXPECT_EQ(answer.status().code(), Code::kNotFound);
  EXPECT_EQ(answer.status().message(), "gone");
  EXPECT_EQ(answer.status().reason(), "X");
}

TEST_F(LifelineTest, ARequestStatesItsDeadlineOnTheBrokersClock) {
  constexpr std::chrono::milliseconds kAhead{123456};
  const auto now = steady_clock::now();
  const auto asked = [&](Verb verb, Deadline deadline) {
    static_cast<void>(lifeline_->Call(verb, "", deadline));
    return broker_->Next().header;
  };
  EXPECT_EQ(asked(Verb::kPublish, now).flags & kFrameDeadline, 0) << "the broker has not said that it reads deadlines";
  lifeline_->StateDeadlines(kAhead);
  const FrameHeader publish = asked(Verb::kPublish, now);
  EXPECT_NE(publish.flags & kFrameDeadline, 0);
  const auto broker_now = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch() + kAhead);
  EXPECT_EQ(publish.status, static_cast<uint32_t>(broker_now.count()));
  for (const Verb verb : {Verb::kRelease, Verb::kCloseChannel, Verb::kMapped, Verb::kReceive, Verb::kWatch}) {
    EXPECT_EQ(asked(verb, now).flags & kFrameDeadline, 0) << "releases are served however late";
  }
  std::thread caller([&] { static_cast<void>(lifeline_->Call(Verb::kList, "", now + hours(24 * 365))); });
  const Request far = broker_->Next();
  EXPECT_EQ(far.header.flags & kFrameDeadline, 0) << "so far away that it would look like the past";
  broker_->Answer(far, "");
  caller.join();
}

TEST(FrameDeadlineTest, ItWrapsAround) {
  for (const int64_t deadline : {int64_t{0}, int64_t{1}, int64_t{0xFFFFFFFF}, int64_t{0x100000000}}) {
    EXPECT_TRUE(IsDeadlinePast(DeadlineOnWire(deadline), deadline));
    EXPECT_TRUE(IsDeadlinePast(DeadlineOnWire(deadline), deadline + 1));
    EXPECT_FALSE(IsDeadlinePast(DeadlineOnWire(deadline), deadline - 1));
    EXPECT_FALSE(IsDeadlinePast(DeadlineOnWire(deadline + kFrameDeadlineMaxMs), deadline));
  }
}

TEST_F(LifelineTest, AnAnswerToWhatWasGivenUpIsObservedAndThenWaitedForNoMore) {
  std::string observed;
  lifeline_->ObserveLate([&](uint64_t request, Verb verb, const Result<Answer>& answer) {
    observed = Concat(request, " ", NameOf(verb), " ", answer->payload);
  });
  const auto given_up = lifeline_->Call(Verb::kPublish, "", steady_clock::now(),
                                        [&](const Result<Answer>&) { observed += " before it is given back"; });
  ASSERT_EQ(given_up.status().reason(), Lifeline::kUnanswered);
  const Request request = broker_->Next();
  const std::string key = Concat(lifeline_->nonce(), "/", request.header.request);
  ASSERT_EQ(given_up.status().metadata().size(), 1u);
  EXPECT_EQ(given_up.status().metadata()[0], (std::pair<std::string, std::string>(Lifeline::kRequestKey, key)));
  EXPECT_NE(given_up.status().message().find("timeout_s="), std::string::npos);
  EXPECT_EQ(lifeline_->AwaitLate(request.header.request, steady_clock::now()).code(), Code::kDeadlineExceeded);
  std::thread server([&] { broker_->Answer(request, "done"); });
  EXPECT_TRUE(lifeline_->AwaitLate(request.header.request, Far()).ok());
  server.join();
  EXPECT_EQ(observed, Concat(request.header.request, " Publish done before it is given back"));
  EXPECT_TRUE(lifeline_->AwaitLate(request.header.request, steady_clock::now()).ok());
}

TEST_F(LifelineTest, WhatChangesNothingForOthersHasNoOutcome) {
  const auto given_up = lifeline_->Call(Verb::kAcquire, "", steady_clock::now());
  EXPECT_EQ(given_up.status().reason(), Lifeline::kUnanswered);
  EXPECT_TRUE(given_up.status().metadata().empty());
}

// The deadline bounds waiting for others; it does not bound a request that makes progress.
TEST_F(LifelineTest, ProgressGivesAnAllocateItsTimeAnew) {
  constexpr std::chrono::milliseconds kTimeout{500};
  steady_clock::duration longest_gap{};  // between two reports
  const auto serve = [&] {
    const Request request = broker_->Next();
    EXPECT_NE(request.header.flags & kFrameProgress, 0);
    const auto begun = steady_clock::now();
    for (auto last = begun; last < begun + 3 * kTimeout;) {  // three times the timeout
      broker_->Send({request.header.verb, kFrameProgress, 0, request.header.request}, "");
      std::this_thread::sleep_for(kTimeout / 50);
      const auto now = steady_clock::now();
      longest_gap = std::max(longest_gap, now - std::exchange(last, now));
    }
    broker_->Answer(request, "memory");
  };
  const auto call = [&] {
    longest_gap = {};
    std::thread server(serve);
    auto answer = lifeline_->Call(Verb::kAllocate, "", steady_clock::now() + kTimeout);
    server.join();
    return answer;
  };
  auto answer = call();
  // Progress was not reported in time: the machine has stalled.
  for (int i = 0; i < 10 && !answer.ok() && longest_gap > kTimeout / 2; ++i) answer = call();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->payload, "memory");
}

TEST_F(LifelineTest, AnAllocateWithoutProgressEndsAndSaysWhatToDo) {
  const auto answer = lifeline_->Call(Verb::kAllocate, "", steady_clock::now());
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  EXPECT_NE(answer.status().message().find("timeout_s="), std::string::npos) << answer.status().ToString();
  const Request request = broker_->Next();
  broker_->Send({request.header.verb, kFrameProgress, 0, request.header.request}, "");
  lifeline_->ReadArrived();
  EXPECT_FALSE(lifeline_->lost()) << "progress of what was given up";
}

// Each server sends an invalid answer. The caller gets the error of a lost connection.
class NonsenseTest : public LifelineTest {
 protected:
  template <class Nonsense>
  void CallMeets(Nonsense nonsense) {
    std::thread server([&] { nonsense(broker_->Next()); });
    const auto answer = lifeline_->Call(Verb::kGetStats, "", Far());
    server.join();
    EXPECT_EQ(answer.status().code(), Code::kUnavailable) << answer.status().ToString();
    EXPECT_TRUE(lifeline_->lost());
    const auto next = lifeline_->Call(Verb::kGetStats, "", Far());
    EXPECT_EQ(next.status().reason(), Lifeline::kNotSent);
  }
};

TEST_F(NonsenseTest, AnUnknownId) {
  CallMeets([&](const Request& request) {
    broker_->Send({request.header.verb, 0, 0, request.header.request + 77}, "");
  });
}
TEST_F(NonsenseTest, ProgressOfAnUnknownId) {
  CallMeets([&](const Request& request) {
    broker_->Send({request.header.verb, kFrameProgress, 0, request.header.request + 77}, "");
  });
}
TEST_F(NonsenseTest, AnotherVerb) {
  CallMeets([&](const Request& request) { broker_->Send({99, 0, 0, request.header.request}, ""); });
}
TEST_F(NonsenseTest, LessThanAHeader) {
  CallMeets([&](const Request&) { broker_->SendRaw("short"); });
}
TEST_F(NonsenseTest, EndOfFile) {
  CallMeets([&](const Request&) { broker_->HangUp(); });
}

TEST_F(LifelineTest, EveryWaiterLearnsOfTheEnd) {
  constexpr int kThreads = 16;
  std::vector<std::thread> callers;
  for (int i = 0; i < kThreads; ++i) {
    callers.emplace_back(
        [&] { EXPECT_EQ(lifeline_->Call(Verb::kList, "", Far()).status().code(), Code::kUnavailable); });
  }
  for (int i = 0; i < kThreads; ++i) broker_->Next();
  broker_->HangUp();
  for (auto& caller : callers) caller.join();
}

TEST_F(LifelineTest, TooManyUnansweredRequestsEndIt) {
  for (size_t i = 0; i < Lifeline::kUnawaitedMax && !lifeline_->lost(); ++i) {
    EXPECT_EQ(lifeline_->Call(Verb::kList, "", steady_clock::now()).status().code(), Code::kDeadlineExceeded);
    broker_->Next();
  }
  EXPECT_FALSE(lifeline_->lost());
  EXPECT_FALSE(lifeline_->Call(Verb::kList, "", steady_clock::now()).ok());
  EXPECT_TRUE(lifeline_->lost());
}

TEST_F(LifelineTest, ARequestLargerThanAFrameIsRefused) {
  const std::string payload(kFrameBytesMax, 'x');
  EXPECT_EQ(lifeline_->Call(Verb::kList, payload, Far()).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(lifeline_->lost());
}

TEST_F(LifelineTest, MemoryWantedIsHeardOnce) {
  std::thread server([&] {
    const Request request = broker_->Next();
    broker_->Send({request.header.verb, kFrameMemoryWanted, 0, request.header.request}, "");
  });
  EXPECT_TRUE(lifeline_->Call(Verb::kGetStats, "", Far()).ok());
  server.join();
  EXPECT_TRUE(lifeline_->TakeMemoryWanted());
  EXPECT_FALSE(lifeline_->TakeMemoryWanted());
}

TEST(LifelineAddressTest, NobodyThereIsUnavailable) {
  EXPECT_EQ(Lifeline::Connect("/nonexistent/of/this/test", steady_clock::now()).status().code(), Code::kUnavailable);
  EXPECT_EQ(Lifeline::Connect(std::string(200, 'a'), steady_clock::now()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Lifeline::Connect("tcp://h:1", steady_clock::now()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Lifeline::Connect("", steady_clock::now()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace arraybridge
