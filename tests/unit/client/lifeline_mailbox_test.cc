// The lifeline and its mailbox, against the broker's own pages and a broker of the test's own: requests keep their
// order, each is answered once, and a broker that sleeps, goes or talks nonsense costs no more than by the socket.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/fork_guard.h"
#include "client/lifeline.h"
#include "daemon/memory/mailbox.h"
#include "tests/unit/client/fake_broker.h"
#include "tests/unit/memory/mailbox_pages.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

constexpr int kCallsBefore = 17;  // by the socket

class LifelineMailboxTest : public ::testing::Test {
 protected:
  LifelineMailboxTest() { Connect(kLong); }
  void Connect(std::chrono::microseconds spin, Lifeline::Interrupted interrupted = {}) {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
    lifeline_.reset();  // before: it leaves the guard
    {
      NoForkHere here;
      lifeline_ = std::make_unique<Lifeline>(UniqueFd(pair[0]), std::move(interrupted), spin);
      here.Join(lifeline_.get());
    }
    broker_ = std::make_unique<FakeBroker>(pair[1]);
  }
  static Deadline Far() { return steady_clock::now() + std::chrono::hours(1); }
  // One call, which the test answers by the socket.
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
  // The lifeline has it from here on.
  void GiveMailbox(bool awake = true) {
    lifeline_->OfferMailbox();
    for (int i = 0; i < kCallsBefore - 1; ++i) CallBySocket();
    std::thread caller([&] { EXPECT_EQ(Call("the last"), "late"); });
    const Request last = broker_->Next();
    const Request first = broker_->Next();
    EXPECT_EQ(first.header.verb, static_cast<uint16_t>(Verb::kBrowse));
    broker_->Answer(first, "", mailbox_->ExportRequests()->get());
    const Request second = broker_->Next();
    EXPECT_EQ(second.header.verb, static_cast<uint16_t>(Verb::kBrowse));
    broker_->Answer(second, "", mailbox_->ExportAnswers()->get());
    broker_->Answer(last, "late");
    caller.join();
    pages_.emplace(*mailbox_->ExportRequests(), *mailbox_->ExportAnswers());
    const Request mapped = broker_->Next();
    EXPECT_EQ(mapped.header.verb, static_cast<uint16_t>(Verb::kMapped));
    ASSERT_TRUE(mailbox_->Seal().ok());
    if (awake) mailbox_->Wake();
    broker_->Answer(mapped, "");
    lifeline_->ReadArrived();
  }
  // Waits until there is one.
  Request Take() {
    while (!mailbox_->pending()) std::this_thread::yield();
    Request request;
    std::string_view message;
    EXPECT_TRUE(mailbox_->Take(buffer_, &request.header, &message).ok());
    request.payload = message;
    return request;
  }
  bool Reply(const Request& request, std::string_view message) { return mailbox_->Answer(request.header, message); }
  // One call, which the test answers in the mailbox; on a busy machine after a rest.
  void CallByMailbox(const std::string& payload = "by the mailbox") {
    for (bool by_mailbox = false; !by_mailbox;) {
      std::thread caller([&] { EXPECT_EQ(Call(payload), "to " + payload); });
      while (!mailbox_->pending() && !broker_->hears()) std::this_thread::yield();
      by_mailbox = mailbox_->pending();
      const Request request = by_mailbox ? Take() : broker_->Next();
      EXPECT_EQ(request.payload, payload);
      EXPECT_EQ(request.header.flags, by_mailbox ? 0 : kFrameMailboxRests);
      if (by_mailbox) {
        EXPECT_TRUE(Reply(request, "to " + payload));
      } else {
        broker_->Answer(request, "to " + payload);
      }
      caller.join();
    }
  }

  std::optional<MailboxPages> pages_;                            // as the lifeline has them
  static constexpr std::chrono::microseconds kLong{10'000'000};  // a test's broker may be slow: nobody gives up
  std::unique_ptr<Lifeline> lifeline_;
  std::unique_ptr<FakeBroker> broker_;
  const std::unique_ptr<Mailbox> mailbox_ = *Mailbox::Create();
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kFrameBytesMax);
};

TEST_F(LifelineMailboxTest, WhoAsksOftenGetsOne) {
  GiveMailbox();
  EXPECT_EQ(lifeline_->asked_in_mailbox(), 0u);
  CallByMailbox();
  CallByMailbox(std::string(mailbox::kMessageBytesMax, 'x').substr(0, 4000));
  EXPECT_EQ(lifeline_->asked_in_mailbox(), 2u);
  CallBySocket(std::string(mailbox::kMessageBytesMax + 1, 'x'));
}

TEST_F(LifelineMailboxTest, WithoutAnOfferNobodyAsksForOne) {
  for (int i = 0; i < 2 * kCallsBefore; ++i) CallBySocket();
}

TEST_F(LifelineMailboxTest, ABrokerThatSleepsIsAskedByTheSocket) {
  GiveMailbox(false);
  CallBySocket();
  mailbox_->Wake();
  CallByMailbox();
  EXPECT_TRUE(mailbox_->Sleep());
  CallBySocket();
}

TEST_F(LifelineMailboxTest, NothingOvertakesWhatWentByTheSocket) {
  GiveMailbox();
  ASSERT_TRUE(lifeline_->Post(Verb::kRelease, "posted").ok());
  std::thread caller([&] { EXPECT_EQ(Call("after it"), "to after it"); });
  EXPECT_EQ(broker_->Next().payload, "posted");
  const Request request = broker_->Next();
  broker_->Answer(request, "to " + request.payload);
  caller.join();
  CallByMailbox();

  std::string told;
  const auto tell = [&](const Result<Answer>& answer) { told = answer->payload; };
  ASSERT_TRUE(lifeline_->Ask(Verb::kRelease, "asked", tell).ok());
  const Request asked = broker_->Next();
  CallBySocket("its answer is not there yet");
  broker_->Answer(asked, "told");
  CallBySocket("it is read by who waits for this");
  EXPECT_EQ(told, "told");
  CallByMailbox();
}

TEST_F(LifelineMailboxTest, AnAnswerWithADescriptorComesByTheSocket) {
  GiveMailbox();
  std::thread caller([&] {
    auto answer = lifeline_->Call(Verb::kAcquire, "a", Far());
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->payload, "granted");
    EXPECT_TRUE(answer->descriptor.valid());
  });
  const Request request = Take();
  mailbox_->Leave(request.header.request);
  broker_->Answer(request, "granted", ::fileno(stderr));
  caller.join();
  CallByMailbox();
}

TEST_F(LifelineMailboxTest, ARefusalIsOneThereToo) {
  GiveMailbox();
  std::thread caller([&] { EXPECT_EQ(lifeline_->Call(Verb::kList, "a", Far()).status().code(), Code::kNotFound); });
  Request request = Take();
  request.header.status = static_cast<uint32_t>(Code::kNotFound);
  Reply(request, "");
  caller.join();
}

TEST_F(LifelineMailboxTest, WhoHasGivenUpIsAnsweredByTheSocketAndTheMailboxIsFreeAgain) {
  Connect(std::chrono::microseconds(50));
  GiveMailbox();
  std::thread first([&] { EXPECT_EQ(Call("first"), "to first"); });
  while (!mailbox_->pending()) std::this_thread::yield();
  while (pages_->is_awaited()) std::this_thread::yield();
  const Request request = Take();
  EXPECT_FALSE(Reply(request, "nobody looks"));
  broker_->Answer(request, "to first");
  first.join();
  const uint64_t before = lifeline_->asked_in_mailbox();
  std::thread second([&] { EXPECT_EQ(Call("second"), "to second"); });
  const Request next = Take();
  if (!Reply(next, "to second")) broker_->Answer(next, "to second");
  second.join();
  EXPECT_EQ(lifeline_->asked_in_mailbox(), before + 1);
}

TEST_F(LifelineMailboxTest, ManyThreadsAskAtOnceEachByItsWay) {
  GiveMailbox();
  std::atomic<bool> stop{false};
  std::atomic<int> by_mailbox{0};
  std::thread in_mailbox([&] {
    while (!stop) {
      if (!mailbox_->pending()) {
        std::this_thread::yield();
        continue;
      }
      const Request request = Take();
      ++by_mailbox;
      Reply(request, "to " + request.payload);
    }
  });
  std::thread by_socket([&] {
    for (;;) {
      const Request request = broker_->Next();
      if (request.payload == "stop") return broker_->Answer(request, "to stop");
      broker_->Answer(request, "to " + request.payload);
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        const std::string mine = std::to_string(1000 * i + round);
        ASSERT_EQ(Call(mine), "to " + mine);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  stop = true;
  in_mailbox.join();
  EXPECT_GT(by_mailbox, 0);
  mailbox_->Sleep();
  EXPECT_EQ(Call("stop"), "to stop");
  by_socket.join();
}

TEST_F(LifelineMailboxTest, WhoRestsSaysSo) {
  Connect(std::chrono::microseconds(50));
  GiveMailbox();
  const auto call = [&] {
    std::thread caller([&] { EXPECT_EQ(Call("a"), "to a"); });
    const Request request = broker_->Next();
    broker_->Answer(request, "to a");
    caller.join();
    return request.header.flags;
  };
  for (int i = 0; i < 2; ++i) {
    std::thread caller([&] { EXPECT_EQ(Call("a"), "to a"); });
    while (!mailbox_->pending()) std::this_thread::yield();
    while (pages_->is_awaited()) std::this_thread::yield();
    broker_->Answer(Take(), "to a");
    caller.join();
  }
  const Status asked = lifeline_->Ask(Verb::kRelease, "beside", [](const auto&) {});
  ASSERT_TRUE(asked.ok());
  const Request beside = broker_->Next();
  EXPECT_EQ(beside.header.flags, kFrameMailboxRests);
  broker_->Answer(beside, "");
  lifeline_->ReadArrived();
  for (uint32_t i = 0; i < Crowding::kRestMin; ++i) ASSERT_EQ(call(), kFrameMailboxRests) << i;
  mailbox_->Sleep();
  EXPECT_EQ(call(), 0) << "the broker shall look again";
  EXPECT_EQ(lifeline_->asked_in_mailbox(), 2u);
}

TEST_F(LifelineMailboxTest, ABrokerThatIsGoneHasNotSeenWhatItHasNotTaken) {
  Connect(std::chrono::milliseconds(1));
  GiveMailbox();
  broker_->HangUp();
  const auto answer = lifeline_->Call(Verb::kPublish, "a", steady_clock::now() + std::chrono::seconds(60));
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  EXPECT_EQ(answer.status().reason(), Lifeline::kNotSent);
}

// A broker that lives may look into it before it hears that the connection has ended.
TEST_F(LifelineMailboxTest, WhatTheClientEndedItselfMayBeDoneYet) {
  GiveMailbox();
  std::thread caller([&] {
    const auto answer = lifeline_->Call(Verb::kPublish, "a", Far());
    EXPECT_EQ(answer.status().code(), Code::kUnavailable);
    EXPECT_NE(answer.status().reason(), Lifeline::kNotSent);
  });
  while (!mailbox_->pending()) std::this_thread::yield();
  mailbox_->Leave(Load(pages_->page().asked, std::memory_order_acquire));  // it waits at the socket
  lifeline_->Break(Unavailable("nonsense"));
  caller.join();
}

TEST_F(LifelineMailboxTest, ADeadlineEndsTheLook) {
  GiveMailbox();
  const auto begun = steady_clock::now();
  const auto answer = lifeline_->Call(Verb::kList, "a", begun + std::chrono::milliseconds(10));
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  EXPECT_LT(steady_clock::now() - begun, kLong / 2);
}

// A signal's handler forks while its thread waits: the child has neither the socket nor the pages.
TEST_F(LifelineMailboxTest, AChildThatIsForkedInACallHearsThatTheConnectionIsLost) {
  const pid_t parent = ::getpid();
  int asked = 0;
  pid_t child = 0;
  Connect(std::chrono::microseconds(50), [&] {
    if (++asked == 1) child = ::fork();
    return asked > 1 && ::getpid() == parent;
  });
  GiveMailbox();
  const auto answer = lifeline_->Call(Verb::kList, "a", Far());
  if (::getpid() != parent) ::_exit(answer.status().code() == Code::kUnavailable ? 7 : 8);
  EXPECT_EQ(answer.status().code(), Code::kCancelled);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(LifelineMailboxTest, ABrokerThatIsGoneMayHaveDoneWhatItHasTaken) {
  Connect(std::chrono::milliseconds(1));
  GiveMailbox();
  std::thread caller([&] {
    const auto answer = lifeline_->Call(Verb::kPublish, "a", Far());
    EXPECT_EQ(answer.status().code(), Code::kUnavailable);
    EXPECT_NE(answer.status().reason(), Lifeline::kNotSent);
  });
  Take();
  broker_->HangUp();
  caller.join();
}

TEST_F(LifelineMailboxTest, AnAnswerToAnotherVerbEndsTheConnection) {
  GiveMailbox();
  std::thread caller([&] { EXPECT_EQ(lifeline_->Call(Verb::kList, "a", Far()).status().code(), Code::kUnavailable); });
  Request request = Take();
  request.header.verb = static_cast<uint16_t>(Verb::kAcquire);
  Reply(request, "granted");
  caller.join();
  EXPECT_TRUE(lifeline_->lost());
}

}  // namespace
}  // namespace arraybridge
