// SPDX-License-Identifier: Apache-2.0
// Unwaited publishes and the verbs: an entry in a queue counts as a Publish, and every request for its name finds it.
#include <gmock/gmock.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/service/queue_writer.h"
#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VerbsQueueTest : public VerbsTest {
 protected:
  v1::PublishRequest Small(const v1::Handle& arena, const std::string& name, uint64_t offset) {
    return PublishOf(arena, name, false, offset, 256);
  }
  void DrainOwn(const QueueWriter& writer) { Serve(*verbs().publishes.FindQueue(writer.caller.session)); }
  void Serve(const OpenQueue& queue) {
    verbs().publishes.ServePublishes(queue, session_queue::Format::kSlots, SessionQueue::Others::kStop);
  }
  // The sessions that were cut, and the causes.
  std::vector<std::pair<SessionId, std::string>> Cut() {
    const std::lock_guard lock(mutex_);
    return cut_;
  }
  void NoteCuts() {
    verbs().cuts().Set(Door::kLifeline, [this](SessionId session, std::string_view why) {
      const std::lock_guard lock(mutex_);
      cut_.emplace_back(session, why);
    });
  }

  std::mutex mutex_;
  std::vector<std::pair<SessionId, std::string>> cut_;
};

TEST_F(VerbsQueueTest, AnEntryIsAPublish) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  writer.Enter(Small(arena, "a", 0));
  writer.Enter(Small(arena, "a", 256));
  writer.Enter(Small(arena, "b", 0));
  writer.Enter(Small(arena, "c", 257));
  writer.Enter(Small(arena, "d", 2 * kMiB));
  writer.Enter(Small(arena, "e\n", 512));
  auto stranger = Small(arena, "f", 512);
  stranger.set_arena_generation(arena.arena_size());
  writer.Enter(stranger);
  auto of_many = Small(arena, "g", 512);
  of_many.mutable_specs()->mutable_arrays(0)->set_size(257);
  writer.Enter(of_many);
  DrainOwn(writer);
  EXPECT_EQ(writer.served(), writer.submitted());
  EXPECT_EQ(writer.CodeOf(0), Code::kOk);
  EXPECT_EQ(writer.ReasonOf(1), "NAME_TAKEN");
  EXPECT_EQ(writer.ReasonOf(2), "OVERLAP");
  EXPECT_EQ(writer.ReasonOf(3), "UNALIGNED");
  EXPECT_EQ(writer.ReasonOf(4), "OUT_OF_BOUNDS");
  EXPECT_EQ(writer.ReasonOf(5), "BAD_NAME");
  EXPECT_EQ(writer.ReasonOf(6), "ARENA_NOT_FOUND");
  EXPECT_EQ(writer.CodeOf(7), Code::kInvalidArgument);
  EXPECT_EQ(broker_->TakeSnapshot().publishes_total, 1u);
  EXPECT_EQ(verbs().lists.Stats().refusals_total(), 7u);
}

TEST_F(VerbsQueueTest, ItsNamespaceIsTheQueues) {
  const Caller maker = Open();
  const v1::Handle arena = StartAllocate(maker, kMiB, 0, "mine")->Get()->message.handle();
  v1::MappedRequest mapped;
  mapped.set_arena(arena.arena());
  ASSERT_TRUE(door().Mapped(maker, mapped).ok());
  QueueWriter writer(verbs(), maker, "mine");
  writer.Enter(Small(arena, "a", 0));
  auto elsewhere = Small(arena, "b", 256);
  elsewhere.set_namespace_("other");
  writer.Enter(elsewhere);
  DrainOwn(writer);
  EXPECT_EQ(writer.CodeOf(0), Code::kOk);
  EXPECT_EQ(writer.CodeOf(1), Code::kOk);
  EXPECT_EQ(broker_->NamespaceRows().size(), 1u);
  EXPECT_EQ(broker_->NamespaceRows().front().shares, 2u);
}

TEST_F(VerbsQueueTest, APublishThatMaySleepOrWaitNeedsAWaitedRequest) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  auto sealed = Small(arena, "a", 0);
  sealed.set_sealed(true);
  writer.Enter(sealed);
  auto sent = Small(arena, "", 0);
  sent.set_channel(1);
  writer.Enter(sent);
  DrainOwn(writer);
  EXPECT_EQ(writer.ReasonOf(0), "NEEDS_A_CALL");
  EXPECT_EQ(writer.ReasonOf(1), "NEEDS_A_CALL");
}

TEST_F(VerbsQueueTest, ARequestThatLooksForANameFindsItInAQueue) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  const Caller other = Open();
  writer.Enter(Small(arena, "acquired", 0));
  EXPECT_TRUE(StartAcquire(other, {"acquired"})->Get().ok());
  writer.Enter(Small(arena, "at once", 256));
  v1::AcquireRequest acquire;
  acquire.add_shares()->set_name("at once");
  EXPECT_TRUE(door().Acquire(other, acquire)->Get().ok());
  writer.Enter(Small(arena, "by grpc", 512));
  EXPECT_TRUE(StartAcquire(Open(Door::kGrpc), {"by grpc"})->Get().ok());
  writer.Enter(Small(arena, "withdrawn", 768));
  Withdraw(other, "withdrawn");
  writer.Enter(Small(arena, "listed", 1024));
  for (const char* const ns : {"", "default"}) {
    writer.Enter(Small(arena, std::string("listed") + ns + "!", ns[0] == 0 ? 1280 : 1536));
    v1::ListRequest list;
    list.set_namespace_(ns);
    list.set_name_prefix("listed");
    EXPECT_EQ(door().List(other, list)->message.shares_size(), ns[0] == 0 ? 2 : 3);
  }
  writer.Enter(Small(arena, "taken", 1792));
  EXPECT_EQ(Publish(other, Arena(other, kMiB), "taken").status().reason(), "NAME_TAKEN");
}

TEST_F(VerbsQueueTest, AnotherUsersQueuesAreNotServed) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  writer.Enter(Small(arena, "a", 0));
  EXPECT_FALSE(StartAcquire(Open(Door::kLifeline, 1001), {"a"})->Get().ok());
  EXPECT_FALSE(StartAcquire(maker, {"other"})->Get().ok());
  EXPECT_EQ(writer.served(), writer.submitted());
}

TEST_F(VerbsQueueTest, ARequestThatWaitsForANameIsAnsweredWhenItIsServed) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  const Caller reader = Open();
  auto both = StartAcquire(reader, {"a", "b"}, 60000);
  auto one = StartAcquire(reader, {"b"}, 60000);
  writer.Enter(Small(arena, "a", 0));
  writer.Enter(Small(arena, "b", 256));
  DrainOwn(writer);
  EXPECT_TRUE(both->Get().ok());
  EXPECT_TRUE(one->Get().ok());
}

// Each retried waiter looks for a name in the other queue. No queue is served while another one is being served.
TEST_F(VerbsQueueTest, WaitersOfTwoQueuesEnd) {
  const Caller one = Open();
  const Caller other = Open();
  const v1::Handle arenas[] = {Arena(one, kMiB), Arena(other, kMiB)};
  QueueWriter first(verbs(), one);
  QueueWriter second(verbs(), other);
  const Caller reader = Open();
  std::vector<std::unique_ptr<Awaited<v1::AcquireResponse>>> waits;
  for (uint64_t i = 0; i < 20; ++i) {
    waits.push_back(StartAcquire(reader, {"a" + std::to_string(i), "b" + std::to_string(i)}, 60000));
  }
  for (uint64_t i = 0; i < 20; ++i) {
    first.Enter(Small(arenas[0], "a" + std::to_string(i), 256 * i));
    second.Enter(Small(arenas[1], "b" + std::to_string(i), 256 * i));
  }
  EXPECT_FALSE(StartAcquire(reader, {"never"})->Get().ok()) << "this serves both queues";
  for (const auto& wait : waits) EXPECT_TRUE(wait->Get().ok());
}

TEST_F(VerbsQueueTest, ReplacedBytesComeBack) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  writer.Enter(Small(arena, "a", 0));
  auto again = Small(arena, "a", 256);
  again.set_replace(true);
  writer.Enter(again);
  DrainOwn(writer);
  EXPECT_EQ(writer.CodeOf(1), Code::kOk);
  const auto next = Publish(maker, arena, "b", 4096);
  ASSERT_EQ(next->message.returned_size(), 1);
  EXPECT_EQ(next->message.returned(0).offset(), 0u);
}

TEST_F(VerbsQueueTest, ASessionHasOneQueue) {
  const Caller maker = Open();
  QueueWriter writer(verbs(), maker);
  v1::BrowseRequest request;
  request.set_part(v1::BrowseRequest::QUEUE);
  EXPECT_EQ(door().Browse(maker, request).status().reason(), "QUEUE_TAKEN");
  request.set_namespace_("other");
  EXPECT_EQ(door().Browse(maker, request).status().reason(), "QUEUE_TAKEN");
  EXPECT_FALSE(verbs().publishes.FindQueue(Open().session));
}

TEST_F(VerbsQueueTest, AUserHasSoManyQueues) {
  config_.limits.object_bytes_per_uid = 3 * object_bytes::kQueue - 1;
  const QueueWriter one(verbs(), Open());
  const Caller ends = Open();
  const QueueWriter other(verbs(), ends);
  const Caller third = Open();
  v1::BrowseRequest request;
  request.set_part(v1::BrowseRequest::QUEUE);
  EXPECT_EQ(door().Browse(third, request).status().reason(), "TOO_MANY_QUEUES");
  const QueueWriter strangers(verbs(), Open(Door::kLifeline, 1001));
  verbs().sessions.EndSession(ends.session);
  EXPECT_TRUE(door().Browse(third, request).ok());
}

TEST_F(VerbsQueueTest, ASessionThatWritesWhatCannotBeIsCutAloneAndARequestThatIsNoneIsRefused) {
  NoteCuts();
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter honest(verbs(), maker);
  honest.Enter(Small(arena, "honest", 0));
  QueueWriter ahead(verbs(), Open());
  Store(ahead.client().own().progress.head, session_queue::Format::kSlots + 1, std::memory_order_release);
  QueueWriter garbage(verbs(), Open());
  garbage.Enter(std::string("\xff\xff\xff\xff garbage"));
  QueueWriter too_long(verbs(), Open());
  too_long.Enter(std::string("x"));
  Store(too_long.client().own().slots[0], ~uint64_t{0}, std::memory_order_relaxed);
  EXPECT_TRUE(StartAcquire(Open(), {"honest"})->Get().ok());
  const auto cut = Cut();
  ASSERT_EQ(cut.size(), 2u);
  for (const auto& [session, why] : cut) {
    EXPECT_TRUE(session == ahead.caller.session || session == too_long.caller.session);
    EXPECT_THAT(why, HasSubstr("queue"));
  }
  EXPECT_EQ(garbage.CodeOf(0), Code::kInvalidArgument);
  EXPECT_FALSE(StartAcquire(Open(), {"other"})->Get().ok());
  EXPECT_EQ(Cut().size(), 2u) << "each session is cut once";
}

// Waited requests in front of a publish do not hide its name. The door serves them later, in order.
TEST_F(VerbsQueueTest, APublishIsFoundBehindWaitedRequests) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  ASSERT_TRUE(writer.client().Submit(Verb::kGetStats, "", 100));
  writer.Enter(Small(arena, "a", 0));
  EXPECT_TRUE(StartAcquire(Open(Door::kGrpc), {"a"})->Get().ok());
  session_queue::Entry entry;
  const auto queue = verbs().publishes.FindQueue(maker.session)->queue;
  ASSERT_TRUE(*queue->Take(entry));
  EXPECT_EQ(session_queue::HeaderOf(entry).id, 100u);
  EXPECT_FALSE(*queue->Take(entry));
}

// Else each request of one session costs as much as the others have sessions.
TEST_F(VerbsQueueTest, APutLeavesTheWaitedRequestsOfOthersInTheirQueues) {
  QueueWriter other(verbs(), Open());
  other.client().Submit(Verb::kList, "waited", 1);
  const Caller maker = Open();
  ASSERT_TRUE(Publish(maker, Arena(maker, kMiB), "a").ok());
  EXPECT_EQ(other.taken(), 0u);
}

TEST_F(VerbsQueueTest, ABrokerThatDrainsRefusesThem) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  writer.Enter(Small(arena, "a", 0));
  verbs().Drain();
  DrainOwn(writer);
  EXPECT_EQ(writer.ReasonOf(0), "DRAINING");
}

TEST_F(VerbsQueueTest, AQueueGoesWithItsSession) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  QueueWriter writer(verbs(), maker);
  const auto queue = verbs().publishes.FindQueue(maker.session);
  writer.Enter(Small(arena, "a", 0));
  EXPECT_TRUE(broker_->has_queues());
  verbs().sessions.EndSession(maker.session);
  EXPECT_FALSE(broker_->has_queues());
  EXPECT_FALSE(verbs().publishes.FindQueue(maker.session));
  EXPECT_FALSE(StartAcquire(Open(), {"a"})->Get().ok());
  EXPECT_EQ(writer.served(), 0u);
  // Another thread may have been serving the queue when the session ended.
  Serve(*queue);
  EXPECT_EQ(writer.ReasonOf(0), "SESSION_ENDED");
}

TEST_F(VerbsQueueTest, ManyThreadsFindWhatWasSubmitted) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, 4 * kMiB);
  QueueWriter writer(verbs(), maker);
  std::atomic<uint64_t> entered{0};
  constexpr uint64_t kNames = 2000;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      const Caller reader = Open();
      for (uint64_t next = 0; next < kNames;) {
        if (entered.load() <= next) {
          std::this_thread::yield();
          continue;
        }
        EXPECT_TRUE(StartAcquire(reader, {"n" + std::to_string(next)})->Get().ok()) << next;
        ++next;
      }
    });
  }
  for (uint64_t i = 0; i < kNames; ++i) {
    while (writer.submitted() - writer.taken() > session_queue::Format::kSlots - 8) std::this_thread::yield();
    writer.Enter(Small(arena, "n" + std::to_string(i), 256 * i));
    entered.store(i + 1);
  }
  for (auto& reader : readers) reader.join();
}

}  // namespace
}  // namespace arraybridge::daemon
