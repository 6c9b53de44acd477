// SPDX-License-Identifier: Apache-2.0
// Requests in a session's queue are served like frames. No content of a queue delays another session.
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

#include "tests/unit/memory/queue_client.h"
#include "tests/unit/service/local_door_fixture.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::steady_clock;

// A raw client with a queue.
struct Asker {
  explicit Asker(LifelineClient of) : client(std::move(of)) {}

  LifelineClient::Got Browse() {
    v1::BrowseRequest browse;
    browse.set_part(v1::BrowseRequest::QUEUE);
    return client.Call(Verb::kBrowse, browse);
  }
  LifelineClient::Got SayMapped() {
    v1::MappedRequest mapped;
    mapped.set_queue(true);
    return client.Call(Verb::kMapped, mapped);
  }
  void Open() {
    const auto files = Browse();
    ASSERT_EQ(files.more.size(), 1u);
    queue.emplace(files.descriptor, files.more.front());
    ASSERT_EQ(SayMapped().code(), Code::kOk);
  }
  void Doorbell() { ASSERT_EQ(client.Send(Verb::kDoorbell, "", 1, kFrameNoReply), SendOutcome::kSent); }
  // Writes an entry, and sends a doorbell if the daemon sleeps, as a client does.
  void Ask(Verb verb, const std::string& payload, uint64_t id, uint8_t flags = 0) {
    while (!queue->Submit(verb, payload, id, flags)) ::usleep(10);
    if (queue->DoorbellIsDue()) Doorbell();
  }
  void Ask(Verb verb, const google::protobuf::MessageLite& message, uint64_t id) {
    Ask(verb, message.SerializeAsString(), id);
  }
  QueueClient::Completion Answer() {
    const auto end = steady_clock::now() + std::chrono::seconds(10);
    for (;;) {
      if (auto completion = queue->Reap()) return *std::move(completion);
      if (steady_clock::now() >= end) return {};
      ::usleep(10);
    }
  }

  LifelineClient client;
  std::optional<QueueClient> queue;
};

class LocalDoorQueueTest : public LocalDoorTest {
 protected:
  std::unique_ptr<Asker> Opened() {
    auto asker = std::make_unique<Asker>(Greeted());
    asker->Open();
    return asker;
  }
};

TEST_F(LocalDoorQueueTest, ARequestIsAnsweredWhereItWasAsked) {
  const auto asker = Opened();
  for (uint64_t id = 10; id < 2000; ++id) {
    asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), id);
    const auto answer = asker->Answer();
    ASSERT_EQ(answer.header.id, id);
    ASSERT_EQ(answer.header.verb, static_cast<uint8_t>(Verb::kGetStats));
    ASSERT_EQ(answer.header.flags, 0);
    v1::GetStatsResponse stats;
    ASSERT_TRUE(stats.ParseFromString(answer.payload));
    ASSERT_EQ(stats.sessions(), 1u);
  }
}

TEST_F(LocalDoorQueueTest, ARefusalComesThereToo) {
  const auto asker = Opened();
  v1::AcquireRequest asks;
  asks.add_shares()->set_name("missing");
  asker->Ask(Verb::kAcquire, asks, 10);
  const auto answer = asker->Answer();
  EXPECT_EQ(Code{answer.header.status}, Code::kNotFound);
  v1::Error error;
  EXPECT_TRUE(error.ParseFromString(answer.payload));
  asker->Ask(Verb{77}, "", 11);
  EXPECT_EQ(Code{asker->Answer().header.status}, Code::kUnimplemented);
}

TEST_F(LocalDoorQueueTest, AnAnswerWithADescriptorIsAFrameAndTheQueueSaysSo) {
  const auto asker = Opened();
  v1::AllocateRequest allocate;
  allocate.mutable_device()->set_type(kDeviceCpu);
  allocate.set_size(4096);
  asker->Ask(Verb::kAllocate, allocate, 10);
  auto got = asker->client.Receive();
  EXPECT_EQ(got.header.request, 10u);
  EXPECT_EQ(got.header.flags, 0);
  EXPECT_TRUE(got.descriptor.valid());
  const auto hint = asker->Answer();
  EXPECT_EQ(hint.header.id, 10u);
  EXPECT_EQ(hint.header.flags, session_queue::kOnSocket);
}

// An Acquire that waits is answered from another thread.
TEST_F(LocalDoorQueueTest, AnAnswerFromAnotherThreadWakesAClientThatSleeps) {
  const auto asker = Opened();
  v1::AcquireRequest waits;
  waits.add_shares()->set_name("not there yet");
  waits.set_timeout_ms(50);
  asker->queue->Announce();
  asker->Ask(Verb::kAcquire, waits, 10);
  const auto doorbell = asker->client.Receive();
  EXPECT_EQ(doorbell.header.verb, static_cast<uint16_t>(Verb::kDoorbell));
  const auto answer = asker->Answer();
  EXPECT_EQ(answer.header.id, 10u);
  EXPECT_EQ(Code{answer.header.status}, Code::kDeadlineExceeded);
}

// Frames that were sent before the first request in the queue are served before it.
TEST_F(LocalDoorQueueTest, TheFirstRequestDoesNotOvertakeFrames) {
  for (int round = 0; round < 30; ++round) {
    Asker asker(Greeted());
    asker.Open();
    std::promise<void> go, stopped;
    door_->Post([&] {
      stopped.set_value();
      go.get_future().wait();
    });
    stopped.get_future().wait();  // the loop is blocked meanwhile
    for (uint64_t request = 1; request <= 40; ++request) asker.client.Send(Verb::kList, "\x0a\x01\n", request);
    asker.queue->Submit(Verb::kGetStats, "", 100);
    if (asker.queue->DoorbellIsDue()) asker.Doorbell();
    go.set_value();
    ASSERT_EQ(asker.Answer().header.id, 100u);
    // All frames must be answered first.
    for (uint64_t request = 1; request <= 40; ++request) {
      ASSERT_EQ(asker.client.Receive().header.request, request);
    }
  }
}

TEST_F(LocalDoorQueueTest, FramesAndRequestsMayAlternate) {
  const auto asker = Opened();
  for (uint64_t id = 10; id < 500; ++id) {
    asker->Ask(Verb::kGetStats, v1::GetStatsRequest(), 2 * id);
    const auto by_socket = asker->client.Call(Verb::kGetServerInfo, v1::GetServerInfoRequest(), 2 * id + 1);
    ASSERT_EQ(by_socket.header.request, 2 * id + 1);
    ASSERT_EQ(asker->Answer().header.id, 2 * id);
  }
}

// A long request is a frame and an entry in its place; the queue alone determines the order.
TEST_F(LocalDoorQueueTest, LongRequestsKeepTheirPlace) {
  const auto asker = Opened();
  v1::ListRequest longer;
  longer.set_name_prefix(std::string(200, 'x'));
  v1::ReleaseRequest release;
  for (uint64_t lease = 1; lease <= 1000; ++lease) release.add_leases(lease << 40);
  const std::string payload = release.SerializeAsString();
  ASSERT_GT(payload.size(), session_queue::Format::kPayloadBytesMax);
  for (uint64_t id = 10; id < 400; id += 3) {
    asker->Ask(Verb::kGetStats, "", id);
    ASSERT_EQ(asker->client.Send(Verb::kRelease, payload, id + 1, kFrameQueued), SendOutcome::kSent);
    asker->Ask(Verb::kRelease, "", id + 1, session_queue::kOnSocket);
    asker->Ask(Verb::kGetStats, "", id + 2);
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(asker->Answer().header.id, id + i);
  }
}

TEST_F(LocalDoorQueueTest, AnEntryWithoutItsFrameAndAFrameWithoutItsEntryCutTheSession) {
  LifelineClient witness = Greeted();
  {
    const auto asker = Opened();
    asker->Ask(Verb::kRelease, "", 10, session_queue::kOnSocket);
    EXPECT_EQ(asker->client.Receive().code(), Code::kInvalidArgument);
    EXPECT_TRUE(asker->client.Receive().closed);
  }
  {
    const auto asker = Opened();
    asker->client.Send(Verb::kRelease, "", 10, kFrameQueued);
    asker->client.Send(Verb::kRelease, "", 11, kFrameQueued);
    EXPECT_EQ(asker->client.Receive().code(), Code::kInvalidArgument);
    EXPECT_TRUE(asker->client.Receive().closed);
  }
  LifelineClient without = Greeted();
  without.Send(Verb::kRelease, "", 10, kFrameQueued);
  EXPECT_EQ(without.Receive().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(without.Receive().closed);
  AwaitSessions(witness, 1);
}

// A client cannot set the flag that the daemon uses internally.
TEST_F(LocalDoorQueueTest, AFrameThatSaysItCameByTheQueueIsAFrame) {
  LifelineClient without = Greeted();
  ASSERT_EQ(without.Send(Verb::kGetStats, "", 7, kFrameInQueue), SendOutcome::kSent);
  EXPECT_EQ(without.Receive().header.request, 7u);
  const auto asker = Opened();
  ASSERT_EQ(asker->client.Send(Verb::kGetStats, "", 8, kFrameInQueue), SendOutcome::kSent);
  EXPECT_EQ(asker->client.Receive().header.request, 8u);
}

TEST_F(LocalDoorQueueTest, ASessionThatWritesWhatCannotBeIsToldAndCut) {
  LifelineClient witness = Greeted();
  const auto asker = Opened();
  asker->Ask(Verb::kGetStats, "", 10);
  ASSERT_EQ(asker->Answer().header.id, 10u);
  Store(asker->queue->own().progress.head, 1000, std::memory_order_release);
  asker->Doorbell();
  const auto told = asker->client.Receive();
  EXPECT_EQ(told.code(), Code::kInvalidArgument);
  EXPECT_NE(told.error().message().find("queue"), std::string::npos) << told.error().message();
  EXPECT_TRUE(asker->client.Receive().closed);
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorQueueTest, AMessageThatIsNoneIsWhatItIsByTheSocket) {
  LifelineClient witness = Greeted();
  const auto asker = Opened();
  asker->Ask(Verb::kList, "\xff\xff\xff", 11);
  EXPECT_EQ(asker->client.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(asker->client.Receive().closed);
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorQueueTest, EachSessionHasOneInItsLife) {
  const auto asker = Opened();
  EXPECT_EQ(asker->Browse().error().reason(), "QUEUE_TAKEN");
  EXPECT_EQ(asker->SayMapped().code(), Code::kOk) << "again";
  asker->Ask(Verb::kGetStats, "", 10);
  EXPECT_EQ(asker->Answer().header.id, 10u);
  Asker without(Greeted());
  EXPECT_EQ(without.SayMapped().error().reason(), "NO_QUEUE");
}

TEST_F(LocalDoorQueueTest, WhereTheLoopNeverSpinsEachRequestIsAnnouncedByADoorbell) {
  config_.spin = std::chrono::microseconds(0);
  const auto asker = Opened();
  for (uint64_t id = 10; id < 100; ++id) {
    asker->Ask(Verb::kGetStats, "", id);
    ASSERT_EQ(asker->Answer().header.id, id);
  }
}

TEST_F(LocalDoorQueueTest, ASessionThatEndsWithRequestsInItLosesNothingButTheAnswers) {
  LifelineClient witness = Greeted();
  for (int i = 0; i < 20; ++i) {
    const auto asker = Opened();
    v1::AllocateRequest allocate;
    allocate.mutable_device()->set_type(kDeviceCpu);
    allocate.set_size(4096);
    asker->Ask(Verb::kAllocate, allocate, 10);
    if (i % 2 == 0) {
      ASSERT_EQ(asker->client.Receive().header.request, 10u);
    }
  }
  AwaitSessions(witness, 1);
  EXPECT_EQ(Stats(witness).arenas(), 0u);
}

TEST_F(LocalDoorQueueTest, TheLoopPollsSoManyAtATimeAndServesAll) {
  constexpr std::ptrdiff_t kPolledMax = 128;  // as in local_door_queues.cc
  config_.spin = std::chrono::seconds(20);    // the loop does not sleep before the end of the test
  std::vector<std::unique_ptr<Asker>> many;
  for (int i = 0; i < 150; ++i) many.push_back(Opened());
  for (uint64_t id = 10; id < 30; ++id) {
    for (const auto& asker : many) asker->Ask(Verb::kGetStats, "", id);
    for (const auto& asker : many) ASSERT_EQ(asker->Answer().header.id, id);
  }
  Stats(many.front()->client);  // begins a turn in which the other queues are empty; it ends after the answer
  const auto polled = [&] {
    return std::ranges::count_if(many, [](const auto& each) { return !each->queue->daemon_sleeps(); });
  };
  const auto end = steady_clock::now() + std::chrono::seconds(10);
  while (polled() > kPolledMax && steady_clock::now() < end) ::usleep(100);
  EXPECT_LE(polled(), kPolledMax);
}

TEST_F(LocalDoorQueueTest, ASessionThatNeverStopsAskingHoldsNoOtherUp) {
  const auto busy = Opened();
  LifelineClient other = Greeted();
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    for (uint64_t id = 10; !stop; ++id) {
      busy->Ask(Verb::kGetStats, "", id, session_queue::kUnwaited);
      while (busy->queue->Reap()) continue;
    }
  });
  for (int i = 0; i < 200; ++i) {
    ASSERT_GT(Stats(other).sessions(), 0u);
    LifelineClient passing = Greeted();
  }
  EXPECT_GT(busy->queue->taken(), 200u);
  EXPECT_EQ(Stats(other).sessions_cut_total(), 0u);
  stop = true;
  flood.join();
}

// A client that does not reap completions is not served, and does not delay other clients. When it reaps, it wakes the
// daemon.
TEST_F(LocalDoorQueueTest, ASessionThatReapsNothingIsNotServed) {
  LifelineClient other = Greeted();
  const auto asker = Opened();
  for (uint64_t id = 1; id <= 400; ++id) asker->Ask(Verb{77}, "", id);
  for (int i = 0; i < 50; ++i) ASSERT_GT(Stats(other).sessions(), 0u);
  EXPECT_EQ(asker->queue->taken(), 255u) << "one slot is kept for a failing publish";
  const auto end = steady_clock::now() + std::chrono::seconds(10);
  while (asker->queue->taken() < asker->queue->submitted() && steady_clock::now() < end) {
    while (asker->queue->Reap()) continue;
    if (asker->queue->DoorbellIsDue()) asker->Doorbell();
    ::usleep(10);
  }
  EXPECT_EQ(asker->queue->taken(), asker->queue->submitted());
}

}  // namespace
}  // namespace arraybridge::daemon
