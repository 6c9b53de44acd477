// What comes by a mailbox is served as a frame is, whoever writes it, and holds up nobody else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/memory/mailbox_pages.h"
#include "tests/unit/service/local_door_fixture.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

// A raw client with a mailbox.
struct Asker {
  explicit Asker(LifelineClient of) : client(std::move(of)) {}

  LifelineClient::Got Browse(v1::BrowseRequest::Part part) {
    v1::BrowseRequest browse;
    browse.set_part(part);
    return client.Call(Verb::kBrowse, browse);
  }
  LifelineClient::Got SayMapped() {
    v1::MappedRequest mapped;
    mapped.set_mailbox(true);
    return client.Call(Verb::kMapped, mapped);
  }
  void Open() {
    auto requests = Browse(v1::BrowseRequest::MAILBOX);
    auto answers = Browse(v1::BrowseRequest::MAILBOX_ANSWERS);
    ASSERT_TRUE(requests.descriptor.valid() && answers.descriptor.valid());
    pages.emplace(requests.descriptor, answers.descriptor);
    ASSERT_EQ(SayMapped().code(), Code::kOk);
  }
  // As a client does: by the pages, and a knock if the broker sleeps.
  void Ask(Verb verb, const google::protobuf::MessageLite& message, uint64_t request) {
    if (pages->Ask(verb, message.SerializeAsString(), request)) return;
    ASSERT_EQ(client.Send(Verb::kRing, "", 1, kFrameNoReply), SendOutcome::kSent);
  }
  bool IsAnswered() {
    const auto end = steady_clock::now() + std::chrono::seconds(10);
    while (pages->is_awaited() && steady_clock::now() < end) ::usleep(10);
    return !pages->is_awaited();
  }

  LifelineClient client;
  std::optional<MailboxPages> pages;
};

class LocalDoorMailboxTest : public LocalDoorTest {
 protected:
  std::unique_ptr<Asker> Opened() {
    auto asker = std::make_unique<Asker>(Greeted());
    asker->Open();
    return asker;
  }
};

TEST_F(LocalDoorMailboxTest, ARequestIsAnsweredWhereItWasAsked) {
  const auto asker = Opened();
  for (uint64_t request = 10; request < 2000; ++request) {
    asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), request);
    ASSERT_TRUE(asker->IsAnswered()) << request;
    ASSERT_FALSE(asker->pages->by_socket());
    ASSERT_EQ(asker->pages->head().verb, static_cast<uint16_t>(Verb::kGetStats));
    ASSERT_EQ(asker->pages->head().flags, 0) << "what the broker notes for itself";
    v1::GetStatsResponse stats;
    ASSERT_TRUE(stats.ParseFromString(asker->pages->answer()));
    ASSERT_EQ(stats.sessions(), 1u);
  }
}

TEST_F(LocalDoorMailboxTest, ARefusalComesThereToo) {
  const auto asker = Opened();
  v1::AcquireRequest asks;
  asks.add_shares()->set_name("nobody's");
  asker->Ask(Verb::kAcquire, asks, 10);
  ASSERT_TRUE(asker->IsAnswered());
  EXPECT_EQ(Code{asker->pages->head().status}, Code::kNotFound);
  v1::Error error;
  EXPECT_TRUE(error.ParseFromString(asker->pages->answer()));
}

TEST_F(LocalDoorMailboxTest, WhatBringsADescriptorComesByTheSocket) {
  const auto asker = Opened();
  v1::AllocateRequest allocate;
  allocate.mutable_device()->set_type(kDeviceCpu);
  allocate.set_size(4096);
  asker->Ask(Verb::kAllocate, allocate, 10);
  auto got = asker->client.Receive();
  EXPECT_EQ(got.header.request, 10u);
  EXPECT_EQ(got.header.flags, 0);
  EXPECT_TRUE(got.descriptor.valid());
  ASSERT_TRUE(asker->IsAnswered());
  EXPECT_TRUE(asker->pages->by_socket());
}

TEST_F(LocalDoorMailboxTest, WhoGivesUpHearsByTheSocketAndMayAskTheNextThere) {
  const auto asker = Opened();
  v1::AcquireRequest waits;
  waits.add_shares()->set_name("not there yet");
  waits.set_timeout_ms(300);
  asker->Ask(Verb::kAcquire, waits, 10);
  while (asker->pages->taken() != 10) ::usleep(10);
  ASSERT_TRUE(mailbox::EndLook(asker->pages->page(), 10));
  asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), 11);
  ASSERT_TRUE(asker->IsAnswered());
  EXPECT_EQ(asker->pages->head().verb, static_cast<uint16_t>(Verb::kGetStats));
  const auto late = asker->client.Receive();
  EXPECT_EQ(late.header.request, 10u);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
}

TEST_F(LocalDoorMailboxTest, AnAnswerFromAnotherThreadComesToWhoStillLooks) {
  const auto asker = Opened();
  v1::AcquireRequest waits;
  waits.add_shares()->set_name("not there yet");
  waits.set_timeout_ms(50);
  asker->Ask(Verb::kAcquire, waits, 10);
  ASSERT_TRUE(asker->IsAnswered());
  EXPECT_EQ(Code{asker->pages->head().status}, Code::kDeadlineExceeded);
}

// It was given up, and something else was said since: the order is as it was asked.
TEST_F(LocalDoorMailboxTest, AFrameDoesNotOvertakeTheRequestBeforeIt) {
  const auto asker = Opened();
  uint64_t request = 10;
  for (int round = 0; round < 300; ++round, request += 3) {
    std::promise<void> go, stopped;
    door_->Post([&] {
      stopped.set_value();
      go.get_future().wait();
    });
    stopped.get_future().wait();  // the loop does nothing meanwhile
    const bool knock = !asker->pages->Ask(Verb::kGetStats, "", request);
    ASSERT_TRUE(mailbox::EndLook(asker->pages->page(), request));
    if (knock) asker->client.Send(Verb::kRing, "", request + 1, kFrameNoReply);
    asker->client.Send(Verb::kGetServerInfo, "", request + 2);
    go.set_value();
    ASSERT_EQ(asker->client.Receive().header.request, request);
    ASSERT_EQ(asker->client.Receive().header.request, request + 2);
  }
}

TEST_F(LocalDoorMailboxTest, FramesAndRequestsMayAlternate) {
  const auto asker = Opened();
  for (uint64_t request = 10; request < 500; ++request) {
    asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), 2 * request);
    const auto by_socket = asker->client.Call(Verb::kGetServerInfo, v1::GetServerInfoRequest(), 2 * request + 1);
    ASSERT_EQ(by_socket.header.request, 2 * request + 1);
    ASSERT_TRUE(asker->IsAnswered());
  }
}

// The flag by which the broker remembers is no client's to give.
TEST_F(LocalDoorMailboxTest, AFrameThatSaysItCameByAMailboxIsAFrame) {
  LifelineClient without = Greeted();
  ASSERT_EQ(without.Send(Verb::kGetStats, "", 7, kFrameInMailbox), SendOutcome::kSent);
  EXPECT_EQ(without.Receive().header.request, 7u);
  const auto asker = Opened();
  ASSERT_EQ(asker->client.Send(Verb::kGetStats, "", 8, kFrameInMailbox), SendOutcome::kSent);
  EXPECT_EQ(asker->client.Receive().header.request, 8u);
}

TEST_F(LocalDoorMailboxTest, WhoWritesNonsenseIsToldAndCut) {
  LifelineClient witness = Greeted();
  const auto asker = Opened();
  asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), 10);
  ASSERT_TRUE(asker->IsAnswered());
  Store(asker->pages->page().request.size, ~uint64_t{0}, std::memory_order_relaxed);
  Store(asker->pages->page().asked, 11, std::memory_order_release);
  ASSERT_EQ(asker->client.Send(Verb::kRing, "", 1, kFrameNoReply), SendOutcome::kSent);
  const auto told = asker->client.Receive();
  EXPECT_EQ(told.code(), Code::kInvalidArgument);
  EXPECT_NE(told.error().message().find("mailbox"), std::string::npos) << told.error().message();
  EXPECT_TRUE(asker->client.Receive().closed);
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorMailboxTest, AnUnknownVerbAndAMessageThatIsNoneAreWhatTheyAreByTheSocket) {
  LifelineClient witness = Greeted();
  const auto asker = Opened();
  asker->Ask(Verb{77}, v1::GetStatsRequest(), 10);
  ASSERT_TRUE(asker->IsAnswered());
  EXPECT_EQ(Code{asker->pages->head().status}, Code::kUnimplemented);
  asker->pages->Ask(Verb::kList, "\xff\xff\xff", 11);
  asker->client.Send(Verb::kRing, "", 1, kFrameNoReply);
  EXPECT_EQ(asker->client.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(asker->client.Receive().closed);
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorMailboxTest, EachSessionHasOneInItsLife) {
  const auto asker = Opened();
  EXPECT_EQ(asker->Browse(v1::BrowseRequest::MAILBOX).error().reason(), "MAILBOX_TAKEN");
  EXPECT_EQ(asker->Browse(v1::BrowseRequest::MAILBOX_ANSWERS).code(), Code::kFailedPrecondition);
  EXPECT_EQ(asker->SayMapped().code(), Code::kOk) << "again";
  Asker without(Greeted());
  EXPECT_EQ(without.Browse(v1::BrowseRequest::MAILBOX_ANSWERS).error().reason(), "NO_MAILBOX");
  EXPECT_EQ(without.SayMapped().error().reason(), "NO_MAILBOX");
}

TEST_F(LocalDoorMailboxTest, ThereIsNoneWhereTheLoopNeverLooksByItself) {
  config_.spin = std::chrono::microseconds(0);
  Asker asker(Greeted());
  EXPECT_EQ(asker.Browse(v1::BrowseRequest::MAILBOX).error().reason(), "NO_MAILBOX");
  v1::GetServerInfoResponse info =
      asker.client.Call(Verb::kGetServerInfo, v1::GetServerInfoRequest()).As<v1::GetServerInfoResponse>();
  EXPECT_EQ(std::ranges::count(info.capabilities(), "mailbox"), 0);
}

TEST_F(LocalDoorMailboxTest, WhoEndsWithARequestInItLosesNothingButTheAnswer) {
  LifelineClient witness = Greeted();
  for (int i = 0; i < 20; ++i) {
    const auto asker = Opened();
    v1::AllocateRequest allocate;
    allocate.mutable_device()->set_type(kDeviceCpu);
    allocate.set_size(4096);
    asker->Ask(Verb::kAllocate, allocate, 10);
    if (i % 2 == 0) {
      ASSERT_TRUE(asker->IsAnswered());
    }
  }
  AwaitSessions(witness, 1);
  EXPECT_EQ(Stats(witness).arenas(), 0u);
}

// A frame makes the loop look into its sender's mailbox, but not into more than so many.
TEST_F(LocalDoorMailboxTest, TheLoopLooksIntoSoManyAtATime) {
  constexpr std::ptrdiff_t kMailboxesMax = 32;  // as local_door_pages.cc has it
  config_.spin = std::chrono::microseconds(1000);
  std::vector<std::unique_ptr<Asker>> many;
  for (int i = 0; i < 50; ++i) many.push_back(Opened());
  std::ptrdiff_t most = 0;
  for (int round = 0; round < 20; ++round) {
    for (const auto& asker : many) {
      Stats(asker->client);
      most = std::max(most, std::ranges::count_if(many, [](const auto& each) { return each->pages->awake(); }));
    }
  }
  EXPECT_GT(most, 0);
  EXPECT_LE(most, kMailboxesMax);
}

TEST_F(LocalDoorMailboxTest, ManyMailboxesAreServed) {
  std::vector<std::unique_ptr<Asker>> many;
  for (int i = 0; i < 50; ++i) many.push_back(Opened());
  for (uint64_t request = 10; request < 60; ++request) {
    for (const auto& asker : many) asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), request);
    for (const auto& asker : many) ASSERT_TRUE(asker->IsAnswered());
  }
}

// Its client has found that others want the processor: the loop does not wait for their slices.
TEST_F(LocalDoorMailboxTest, WhoSaysThatItRestsIsNotLookedFor) {
  config_.spin = std::chrono::microseconds(1000);
  const auto asker = Opened();
  const auto call = [&](uint16_t flags) {
    asker->client.Send(Verb::kGetStats, "", 7, flags);
    EXPECT_EQ(asker->client.Receive().header.request, 7u);
    return asker->pages->awake();
  };
  bool was_awake = false;
  for (int i = 0; i < 100; ++i) {
    was_awake = call(0) || was_awake;
    call(kFrameMailboxRests);
    while (asker->pages->awake()) ::usleep(10);  // it was so before
    for (int j = 0; j < 10; ++j) ASSERT_FALSE(call(kFrameMailboxRests));
    asker->client.Send(Verb::kRelease, "", 1, kFrameNoReply);
    ASSERT_FALSE(call(kFrameMailboxRests)) << "who wants no answer says nothing of it";
  }
  EXPECT_TRUE(was_awake);
  asker->pages->Ask(Verb::kGetStats, "", 8);
  call(kFrameMailboxRests);
  EXPECT_TRUE(asker->IsAnswered()) << "before the frame, all the same";
}

// Who never stops asking there does not keep the loop from the sockets, nor from who comes and goes.
TEST_F(LocalDoorMailboxTest, WhoDoesNotStopAskingHoldsNobodyUp) {
  const auto busy = Opened();
  LifelineClient other = Greeted();
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    for (uint64_t request = 10; !stop; ++request) {
      if (!busy->pages->Ask(Verb::kGetStats, "", request, kFrameNoReply)) {
        busy->client.Send(Verb::kRing, "", 1, kFrameNoReply);
      }
    }
  });
  for (int i = 0; i < 200; ++i) {
    ASSERT_GT(Stats(other).sessions(), 0u);
    LifelineClient passing = Greeted();
  }
  EXPECT_GT(busy->pages->taken(), 200u);
  EXPECT_EQ(Stats(other).sessions_cut_total(), 0u);
  stop = true;
  flood.join();
}

}  // namespace
}  // namespace arraybridge
