// SPDX-License-Identifier: Apache-2.0
// The lifeline and its queue, with the daemon's own pages and a test's broker. Requests keep their order and each is
// answered once. If the broker sleeps, goes away or writes invalid entries, no request is lost silently.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/lifeline/lifeline.h"
#include "client/process/fork_guard.h"
#include "daemon/memory/shared_pages/session_queue.h"
#include "tests/unit/client/fake_broker.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::steady_clock;

constexpr int kCallsBefore = 17;  // calls on the socket

class LifelineQueueTest : public ::testing::Test {
 protected:
  LifelineQueueTest() { Connect(kLong); }
  void Connect(std::chrono::microseconds spin, Lifeline::Interrupted interrupted = {}) {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
    lifeline_.reset();  // first, because it leaves the fork guard
    {
      NoForkHere here;
      lifeline_ = std::make_unique<Lifeline>(UniqueFd(pair[0]), std::move(interrupted), spin);
      here.Join(lifeline_.get());
    }
    broker_ = std::make_unique<FakeBroker>(pair[1]);
  }
  static Deadline Far() { return steady_clock::now() + std::chrono::hours(1); }
  // A call that the test answers on the socket.
  void CallBySocket(const std::string& payload = "by the socket") {
    std::thread caller([&] { EXPECT_EQ(Call(payload), "to " + payload); });
    const Request request = broker_->Next();
    EXPECT_EQ(request.payload, payload);
    broker_->Answer(request, "to " + payload);
    caller.join();
  }
  std::string Call(const std::string& payload) {
    auto answer = lifeline_->Call(Verb::kList, payload, Far());
    return answer.ok() ? answer->payload : answer.status().ToString();
  }
  // Opens the queue, which the lifeline uses from now on.
  void GiveQueue() {
    lifeline_->OfferQueue("mine");
    lifeline_->WantQueue();
    lifeline_->WantQueue();
    const Request browse = broker_->Next();
    EXPECT_EQ(browse.header.verb, static_cast<uint16_t>(Verb::kBrowse));
    EXPECT_NE(browse.payload.find("mine"), std::string::npos);
    broker_->Answer(browse, *queue_->Export());
    lifeline_->ReadArrived();
    const Request mapped = broker_->Next();
    EXPECT_EQ(mapped.header.verb, static_cast<uint16_t>(Verb::kMapped));
    EXPECT_FALSE(lifeline_->has_queue()) << "the broker takes nothing from it yet";
    ASSERT_TRUE(queue_->Seal([this] { Doorbell(); }).ok());
    broker_->Answer(mapped, "");
    lifeline_->ReadArrived();
    ASSERT_TRUE(lifeline_->has_queue());
  }
  void Doorbell() {
    Request doorbell;
    doorbell.header = {static_cast<uint16_t>(Verb::kDoorbell), kFrameNoReply, 0, 0};
    broker_->Answer(doorbell, "");
  }
  // Waits for a request and takes it.
  Request Take() {
    session_queue::Entry entry;
    for (;;) {
      const auto taken = queue_->Take(entry);
      EXPECT_TRUE(taken.ok());
      if (*taken) break;
      std::this_thread::yield();
    }
    const session_queue::Header header = session_queue::HeaderOf(entry);
    Request request;
    request.header = {header.verb, header.flags, header.status, header.id};
    request.payload = session_queue::PayloadOf(entry);
    return request;
  }
  void Reply(const Request& request, std::string_view payload, uint32_t status = 0, uint8_t flags = 0) {
    const auto written = queue_->Complete({.verb = static_cast<uint8_t>(request.header.verb),
                                           .flags = flags,
                                           .bytes = 0,
                                           .status = status,
                                           .id = request.header.request},
                                          payload);
    ASSERT_NE(written, SessionQueue::Written::kNo);
    if (written == SessionQueue::Written::kDoorbellIsDue) Doorbell();
  }
  // A call that the test answers through the queue.
  void CallByQueue(const std::string& payload = "by the queue") {
    std::thread caller([&] { EXPECT_EQ(Call(payload), "to " + payload); });
    const Request request = Take();
    EXPECT_EQ(request.payload, payload);
    Reply(request, "to " + payload);
    caller.join();
  }

  static constexpr std::chrono::microseconds kLong{10'000'000};  // longer than any answer of the test's broker takes
  std::unique_ptr<Lifeline> lifeline_;
  std::unique_ptr<FakeBroker> broker_;
  std::unique_ptr<SessionQueue> queue_ = *SessionQueue::Create(1);
};

TEST_F(LifelineQueueTest, AClientThatAsksOftenOpensOne) {
  lifeline_->OfferQueue("mine");
  for (int i = 0; i < kCallsBefore - 1; ++i) CallBySocket();
  std::thread caller([&] { EXPECT_EQ(Call("the last"), "late"); });
  const Request browse = broker_->Next();
  const Request last = broker_->Next();
  EXPECT_EQ(browse.header.verb, static_cast<uint16_t>(Verb::kBrowse));
  broker_->Answer(last, "late");
  caller.join();
}

TEST_F(LifelineQueueTest, WithoutAnOfferNoneIsOpened) {
  for (int i = 0; i < 2 * kCallsBefore; ++i) CallBySocket();
}

TEST_F(LifelineQueueTest, ABrokerThatGivesOnePageIsAskedByTheSocket) {
  lifeline_->OfferQueue("");
  lifeline_->WantQueue();
  broker_->Answer(broker_->Next(), "", queue_->Export()->front().get());
  lifeline_->ReadArrived();
  CallBySocket();
  EXPECT_FALSE(lifeline_->has_queue());
}

TEST_F(LifelineQueueTest, ABrokerThatRefusesTheSealIsAskedByTheSocket) {
  lifeline_->OfferQueue("");
  lifeline_->WantQueue();
  broker_->Answer(broker_->Next(), *queue_->Export());
  lifeline_->ReadArrived();
  const Request mapped = broker_->Next();
  EXPECT_EQ(mapped.header.verb, static_cast<uint16_t>(Verb::kMapped));
  const auto refused = static_cast<uint32_t>(Code::kFailedPrecondition);
  broker_->Send({mapped.header.verb, 0, refused, mapped.header.request}, "");
  lifeline_->ReadArrived();
  CallBySocket();
  EXPECT_FALSE(lifeline_->has_queue());
}

TEST_F(LifelineQueueTest, AFrameWithMoreDescriptorsThanOneMayHaveLosesTheConnection) {
  lifeline_->OfferQueue("");
  lifeline_->WantQueue();
  broker_->SendWithDescriptors(broker_->Next(), kFrameDescriptorsMax + 1);
  lifeline_->ReadArrived();
  EXPECT_TRUE(lifeline_->lost());
}

TEST_F(LifelineQueueTest, AllRequestsGoThroughIt) {
  GiveQueue();
  CallByQueue();
  CallByQueue(std::string(session_queue::Format::kPayloadBytesMax, 'x').substr(0, 4000));
  ASSERT_TRUE(lifeline_->Post(Verb::kRelease, "posted").ok());
  std::string told;
  ASSERT_TRUE(
      lifeline_->Ask(Verb::kRelease, "asked", [&](const Result<Answer>& answer) { told = answer->payload; }).ok());
  std::thread caller([&] { EXPECT_EQ(Call("called"), "to called"); });
  const Request posted = Take();
  EXPECT_EQ(posted.payload, "posted");
  EXPECT_EQ(posted.header.flags, session_queue::kUnwaited);
  const Request asked = Take();
  EXPECT_EQ(asked.payload, "asked");
  const Request called = Take();
  EXPECT_EQ(called.payload, "called");
  Reply(asked, "told");
  Reply(called, "to called");
  caller.join();
  EXPECT_EQ(told, "told");
}

TEST_F(LifelineQueueTest, ALongRequestIsAFrameInItsPlace) {
  GiveQueue();
  const std::string payload(session_queue::Format::kPayloadBytesMax + 1, 'x');
  std::thread caller([&] { EXPECT_EQ(Call(payload), "short"); });
  const Request place = Take();
  EXPECT_EQ(place.header.flags, session_queue::kOnSocket);
  Request frame = broker_->Next();
  while (frame.header.verb == static_cast<uint16_t>(Verb::kDoorbell)) frame = broker_->Next();
  EXPECT_EQ(frame.header.request, place.header.request);
  EXPECT_EQ(frame.header.flags & kFrameQueued, kFrameQueued);
  EXPECT_EQ(frame.payload, payload);
  Reply(place, "short");
  caller.join();
  EXPECT_NE(Call(std::string(kFrameBytesMax, 'x')).find("does not fit"), std::string::npos);
}

TEST_F(LifelineQueueTest, AnAnswerWithADescriptorComesByTheSocketAndEndsTheSpin) {
  GiveQueue();
  std::thread caller([&] {
    auto answer = lifeline_->Call(Verb::kAcquire, "a", Far());
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->payload, "granted");
    EXPECT_TRUE(answer->descriptor.valid());
  });
  const Request request = Take();
  broker_->Answer(request, "granted", ::fileno(stderr));
  queue_->Complete(
      {.verb = 6, .flags = session_queue::kOnSocket, .bytes = 0, .status = 0, .id = request.header.request}, {});
  caller.join();
  CallByQueue();
}

TEST_F(LifelineQueueTest, AnAnswerOnTheSocketIsHandledBeforeOneToALaterRequestIsReturned) {
  GiveQueue();
  bool handled = false;
  const auto handle = [&](const Result<Answer>& answer) { handled = answer.ok() && answer->payload == "pages"; };
  ASSERT_TRUE(lifeline_->Ask(Verb::kBrowse, "earlier", handle).ok());
  std::thread caller([&] {
    EXPECT_EQ(Call("later"), "done");
    EXPECT_TRUE(handled);
  });
  const Request earlier = Take();
  const Request later = Take();
  broker_->Answer(earlier, "pages", ::fileno(stderr));
  queue_->Complete({.verb = static_cast<uint8_t>(earlier.header.verb),
                    .flags = session_queue::kOnSocket,
                    .bytes = 0,
                    .status = 0,
                    .id = earlier.header.request},
                   {});
  Reply(later, "done");
  caller.join();
}

TEST_F(LifelineQueueTest, ARefusalIsOneThereToo) {
  GiveQueue();
  std::thread caller([&] { EXPECT_EQ(lifeline_->Call(Verb::kList, "a", Far()).status().code(), Code::kNotFound); });
  Reply(Take(), "", static_cast<uint32_t>(Code::kNotFound));
  caller.join();
}

TEST_F(LifelineQueueTest, AClientThatHasStoppedSpinningIsWoken) {
  Connect(std::chrono::microseconds(50));
  GiveQueue();
  for (int i = 0; i < 300; ++i) {
    std::thread caller([&] { EXPECT_EQ(Call("a"), "to a"); });
    const Request request = Take();
    if (i % 3 != 0) std::this_thread::sleep_for(std::chrono::microseconds(50 * (i % 7)));
    Reply(request, "to a");
    caller.join();
  }
}

TEST_F(LifelineQueueTest, ManyThreadsAskAtOnceInAnyOrder) {
  Connect(std::chrono::microseconds(50));
  GiveQueue();
  constexpr int kThreads = 8, kRounds = 300;
  std::thread broker([&] {
    std::vector<Request> held;
    for (int served = 0; served < kThreads * kRounds;) {
      session_queue::Entry entry;
      const auto taken = queue_->Take(entry);
      ASSERT_TRUE(taken.ok());
      if (*taken) {
        const auto header = session_queue::HeaderOf(entry);
        held.push_back({{header.verb, 0, 0, header.id}, std::string(session_queue::PayloadOf(entry))});
        if (held.size() < 3 && served + 20 < kThreads * kRounds) continue;
      }
      for (; !held.empty(); held.pop_back(), ++served) Reply(held.back(), "to " + held.back().payload);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < kThreads; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string mine = std::to_string(1000 * i + round);
        ASSERT_EQ(Call(mine), "to " + mine);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  broker.join();
}

TEST_F(LifelineQueueTest, AFullQueueIsWaitedFor) {
  GiveQueue();
  for (uint64_t i = 0; i < session_queue::Format::kSlots; ++i) {
    ASSERT_TRUE(lifeline_->Post(Verb::kRelease, std::to_string(i)).ok());
  }
  EXPECT_EQ(lifeline_->Post(Verb::kRelease, "one too many").code(), Code::kDeadlineExceeded);
  const auto in_vain = lifeline_->Call(Verb::kList, "a", steady_clock::now() + std::chrono::milliseconds(20));
  EXPECT_EQ(in_vain.status().code(), Code::kDeadlineExceeded);
  std::thread caller([&] { EXPECT_EQ(Call("there is room"), "to there is room"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (uint64_t i = 0; i < session_queue::Format::kSlots; ++i) EXPECT_EQ(Take().payload, std::to_string(i));
  queue_->Finish();
  const Request request = Take();
  EXPECT_EQ(request.payload, "there is room");
  Reply(request, "to there is room");
  caller.join();
}

TEST_F(LifelineQueueTest, APostWithADeadlineWaitsForRoom) {
  GiveQueue();
  for (uint64_t i = 0; i < session_queue::Format::kSlots; ++i) {
    ASSERT_TRUE(lifeline_->Post(Verb::kRelease, std::to_string(i)).ok());
  }
  const auto soon = steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_EQ(lifeline_->Post(Verb::kCloseChannel, "in vain", soon).code(), Code::kDeadlineExceeded);
  EXPECT_GE(steady_clock::now(), soon);
  std::thread poster([&] { EXPECT_TRUE(lifeline_->Post(Verb::kCloseChannel, "there is room", Far()).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it usually waits by then
  for (uint64_t i = 0; i < session_queue::Format::kSlots; ++i) EXPECT_EQ(Take().payload, std::to_string(i));
  queue_->Finish();
  const Request request = Take();
  EXPECT_EQ(request.payload, "there is room");
  EXPECT_EQ(request.header.flags, session_queue::kUnwaited);
  poster.join();
}

TEST_F(LifelineQueueTest, ABrokerThatIsGoneHasNotSeenARequestThatItHasNotTaken) {
  Connect(std::chrono::milliseconds(1));
  GiveQueue();
  std::thread caller([&] {
    const auto answer = lifeline_->Call(Verb::kPublish, "a", steady_clock::now() + std::chrono::seconds(60));
    EXPECT_EQ(answer.status().code(), Code::kUnavailable);
    EXPECT_EQ(answer.status().reason(), Lifeline::kNotSent);
  });
  while (!queue_->HasRequest()) std::this_thread::yield();
  broker_->HangUp();
  caller.join();
}

TEST_F(LifelineQueueTest, ABrokerThatIsGoneMayHaveServedARequestThatItHasTaken) {
  Connect(std::chrono::milliseconds(1));
  GiveQueue();
  std::thread caller([&] {
    const auto answer = lifeline_->Call(Verb::kPublish, "a", Far());
    EXPECT_EQ(answer.status().code(), Code::kUnavailable);
    EXPECT_NE(answer.status().reason(), Lifeline::kNotSent);
  });
  Take();
  broker_->HangUp();
  caller.join();
}

TEST_F(LifelineQueueTest, AnAnswerThatABrokerWroteBeforeItWentIsHeard) {
  Connect(std::chrono::microseconds(50));
  GiveQueue();
  std::thread caller([&] { EXPECT_EQ(Call("a"), "to a"); });
  const Request request = Take();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the client sleeps
  queue_->Complete({.verb = 10, .flags = 0, .bytes = 0, .status = 0, .id = request.header.request}, "to a");
  broker_->HangUp();  // and no doorbell
  caller.join();
}

// A live broker may take the request before it notices the end of the connection.
TEST_F(LifelineQueueTest, ARequestOfAConnectionThatTheClientEndedMayBeServedYet) {
  Connect(std::chrono::microseconds(50));
  GiveQueue();
  std::thread caller([&] {
    const auto answer = lifeline_->Call(Verb::kPublish, "a", Far());
    EXPECT_EQ(answer.status().code(), Code::kUnavailable);
    EXPECT_NE(answer.status().reason(), Lifeline::kNotSent);
  });
  while (!queue_->HasRequest()) std::this_thread::yield();
  lifeline_->Break(Unavailable("nonsense"));
  caller.join();
}

TEST_F(LifelineQueueTest, ADeadlineEndsTheWaitAndALateAnswerIsGivenBack) {
  Connect(std::chrono::microseconds(50));
  GiveQueue();
  std::string late;
  const auto answer = lifeline_->Call(Verb::kList, "a", steady_clock::now() + std::chrono::milliseconds(10),
                                      [&](const Result<Answer>& given_back) { late = given_back->payload; });
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  Reply(Take(), "granted");
  lifeline_->ReadArrived();
  EXPECT_EQ(late, "granted");
  CallByQueue();
}

// An answer with a descriptor comes on the socket, and an entry in the queue says so.
TEST_F(LifelineQueueTest, LateAnswersAreHandledInTheOrderOfTheirRequests) {
  std::function<void()> reply = [] {};
  for (const bool asleep : {false, true}) {
    Connect(std::chrono::microseconds(0), [&] { return std::exchange(reply, [] {})(), false; });
    queue_ = *SessionQueue::Create(1);
    GiveQueue();
    std::string late;
    for (int i = 0; i < 3; ++i) {
      const auto given_up = lifeline_->Call(Verb::kReceive, "a", steady_clock::now() + std::chrono::milliseconds(1),
                                            [&](const Result<Answer>& came) { late += came->payload; });
      EXPECT_EQ(given_up.status().code(), Code::kDeadlineExceeded);
    }
    const Request first = Take(), second = Take(), third = Take();
    const auto answers = [&] {
      Reply(first, "1");
      broker_->Answer(second, "2");
      Reply(second, {}, 0, session_queue::kOnSocket);
      Reply(third, "3");
    };
    if (asleep) {  // a doorbell on the socket precedes the answer there
      reply = answers;
      EXPECT_FALSE(lifeline_->Call(Verb::kList, "a", steady_clock::now() + std::chrono::seconds(1)).ok());
    } else {
      answers();
      lifeline_->ReadArrived();
    }
    EXPECT_EQ(late, "123");
  }
}

// A signal handler forks while its thread waits. The child has neither the socket nor the pages.
TEST_F(LifelineQueueTest, AChildThatIsForkedInACallHearsThatTheConnectionIsLost) {
  const pid_t parent = ::getpid();
  int asked = 0;
  pid_t child = 0;
  Connect(std::chrono::microseconds(50), [&] {
    if (++asked == 1) child = ::fork();
    return asked > 1 && ::getpid() == parent;
  });
  GiveQueue();
  const auto answer = lifeline_->Call(Verb::kList, "a", Far());
  if (::getpid() != parent) ::_exit(answer.status().code() == Code::kUnavailable ? 7 : 8);
  EXPECT_EQ(answer.status().code(), Code::kCancelled);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(LifelineQueueTest, AnAnswerToAnotherVerbEndsTheConnection) {
  GiveQueue();
  std::thread caller([&] { EXPECT_EQ(lifeline_->Call(Verb::kList, "a", Far()).status().code(), Code::kUnavailable); });
  Request request = Take();
  request.header.verb = static_cast<uint16_t>(Verb::kAcquire);
  Reply(request, "granted");
  caller.join();
  EXPECT_TRUE(lifeline_->lost());
}

TEST_F(LifelineQueueTest, AnAnswerToARequestThatWasNotMadeEndsTheConnection) {
  GiveQueue();
  Request request;
  request.header = {static_cast<uint16_t>(Verb::kList), 0, 0, 1'000'000};
  Reply(request, "granted");
  lifeline_->ReadArrived();
  EXPECT_TRUE(lifeline_->lost());
}

}  // namespace
}  // namespace arraybridge::daemon
