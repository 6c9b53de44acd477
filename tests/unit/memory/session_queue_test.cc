// SPDX-License-Identifier: Apache-2.0
// The daemon's side of a session queue: what a session may write, whether honest or not, and how the daemon reacts.
#include "daemon/memory/shared_pages/session_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/memory/queue_client.h"

namespace arraybridge::daemon {
namespace {

using session_queue::Format;
using Others = SessionQueue::Others;
using Written = SessionQueue::Written;

constexpr uint64_t kAll = Format::kSlots;

class DaemonQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(queue_->Seal([this] { ++doorbells_; }).ok());
  }

  Result<uint64_t> Serve(uint64_t most = kAll, Others others = Others::kStop) {
    return queue_->ServePublishes(most, others, [&](uint64_t /*request*/, std::string_view message) -> Status {
      published_.emplace_back(message);
      if (message != "refused") return Ok();
      return AlreadyExists("it is there").Because("NAME_TAKEN");
    });
  }
  // The id of the request that is taken; 0 if there is none.
  uint64_t Take() {
    const auto taken = queue_->Take(entry_);
    return taken.ok() && *taken ? session_queue::HeaderOf(entry_).id : 0;
  }
  Written Complete(uint64_t id, std::string_view payload = {}) {
    return queue_->Complete({.verb = 10, .flags = 0, .bytes = 0, .status = 0, .id = id}, payload);
  }

  const std::unique_ptr<SessionQueue> queue_ = *SessionQueue::Create(7);
  const std::vector<UniqueFd> files_ = *queue_->Export();
  QueueClient client_{files_[0], files_[1]};
  session_queue::Entry entry_{};
  std::vector<std::string> published_;
  int doorbells_ = 0;
};

TEST_F(DaemonQueueTest, RequestsAreTakenOnceInOrderAndCompletionsAreRead) {
  EXPECT_FALSE(queue_->HasRequest());
  EXPECT_EQ(client_.theirs().preamble.major, session_queue::kMajor);
  EXPECT_EQ(client_.theirs().preamble.nonce, 7u);
  std::string message;
  for (uint64_t id = 1; message.size() <= Format::kPayloadBytesMax; ++id) {
    ASSERT_TRUE(client_.Submit(Verb::kList, message, id));
    ASSERT_TRUE(queue_->HasRequest());
    ASSERT_EQ(Take(), id);
    EXPECT_FALSE(queue_->HasRequest());
    EXPECT_EQ(client_.taken(), client_.submitted());
    ASSERT_EQ(session_queue::PayloadOf(entry_), message);
    ASSERT_NE(Complete(id, message), Written::kNo);
    const auto completion = client_.Reap();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->header.id, id);
    EXPECT_EQ(completion->payload, message);
    EXPECT_EQ(client_.theirs().preamble.answered_id, id);
    message.append(id % 3 == 0 ? 97 : 1, static_cast<char>('a' + id % 26));
  }
}

TEST_F(DaemonQueueTest, PublishesAreServedInOrderAFewAtATime) {
  for (uint64_t id = 1; id <= 100; ++id) client_.Publish(std::to_string(id), id);
  EXPECT_EQ(*Serve(64), 64u);
  EXPECT_EQ(client_.served(), 64u);
  EXPECT_TRUE(queue_->HasRequest());
  EXPECT_EQ(*Serve(64), 36u);
  EXPECT_EQ(*Serve(64), 0u);
  ASSERT_EQ(published_.size(), 100u);
  for (uint64_t id = 1; id <= 100; ++id) EXPECT_EQ(published_[id - 1], std::to_string(id));
  EXPECT_FALSE(client_.Reap()) << "success has no completion";
}

TEST_F(DaemonQueueTest, AFailedPublishHasACompletionOfOneSlotBeforeServedPassesIt) {
  client_.Publish("fine", 1);
  client_.Publish("refused", 2);
  client_.Publish("fine", 3);
  ASSERT_EQ(*Serve(), 3u);
  EXPECT_EQ(client_.served(), 3u);
  const auto failed = client_.Reap();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->header.id, 2u);
  EXPECT_EQ(failed->header.flags, session_queue::kUnwaited);
  EXPECT_EQ(Code{failed->header.status}, Code::kAlreadyExists);
  EXPECT_EQ(failed->payload, "\x12\x0aNAME_TAKEN") << "an Error message with field 2, reason";
  EXPECT_FALSE(client_.Reap());
}

TEST_F(DaemonQueueTest, AReasonIsTruncatedToOneSlot) {
  client_.Publish("x", 1);
  const std::string reason(1000, 'R');
  ASSERT_TRUE(
      queue_->ServePublishes(1, Others::kStop, [&](uint64_t, auto) { return Internal("").Because(reason); }).ok());
  const auto failed = client_.Reap();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->payload.size(), session_queue::kOneSlotBytes);
}

TEST_F(DaemonQueueTest, ThePublishesOfOneThreadPassTheWaitedRequestsOfOthers) {
  client_.Submit(Verb::kAcquire, "waited", 1);
  client_.Publish("a", 2);
  client_.Submit(Verb::kList, "waited", 3);
  client_.Publish("b", 4);
  EXPECT_EQ(*Serve(kAll, Others::kStop), 0u);
  EXPECT_EQ(*Serve(kAll, Others::kDefer), 2u);
  EXPECT_EQ(published_, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(queue_->HasRequest()) << "deferred requests remain";
  EXPECT_EQ(client_.served(), 0u) << "they have not been served";
  client_.Publish("c", 5);
  EXPECT_EQ(*Serve(kAll, Others::kStop), 0u) << "the deferred requests come first";
  EXPECT_EQ(Take(), 1u);
  EXPECT_EQ(Take(), 3u);
  EXPECT_EQ(session_queue::PayloadOf(entry_), "waited");
  EXPECT_EQ(Take(), 0u);
  EXPECT_EQ(*Serve(kAll, Others::kStop), 1u);
  EXPECT_EQ(client_.served(), client_.submitted());
}

TEST_F(DaemonQueueTest, APublishIsSeenWithoutTakingARequest) {
  EXPECT_FALSE(queue_->MayHavePublish());
  client_.Submit(Verb::kAcquire, "waited", 1);
  EXPECT_FALSE(queue_->MayHavePublish());
  client_.Submit(Verb::kPublish, std::string(1000, 'm'), 2);
  EXPECT_FALSE(queue_->MayHavePublish()) << "its session waits for it";
  client_.Publish("a", 3);
  EXPECT_TRUE(queue_->MayHavePublish());
  EXPECT_EQ(client_.taken(), 0u);
  EXPECT_EQ(*Serve(kAll, Others::kDefer), 1u);
  EXPECT_FALSE(queue_->MayHavePublish());
  for (uint64_t id = 4; id < 12; ++id) client_.Submit(Verb::kList, "", id);
  EXPECT_TRUE(queue_->MayHavePublish()) << "it looks at a few only";
  Store(client_.own().progress.head, UINT64_MAX, std::memory_order_release);
  EXPECT_TRUE(queue_->MayHavePublish()) << "so it ends for an impossible head, too";
}

TEST_F(DaemonQueueTest, WaitedRequestsAreDeferredUpToALimit) {
  for (uint64_t id = 1; id <= kAll; ++id) ASSERT_TRUE(client_.Submit(Verb::kList, "", id));
  EXPECT_EQ(*Serve(kAll, Others::kDefer), 0u);
  for (uint64_t id = kAll + 1; id <= 2 * kAll; ++id) ASSERT_TRUE(client_.Submit(Verb::kList, "", id));
  EXPECT_EQ(*Serve(kAll, Others::kDefer), 0u);
  EXPECT_FALSE(client_.Submit(Verb::kList, "", 0)) << "no further request is taken";
  for (uint64_t id = 1; id <= 2 * kAll; ++id) ASSERT_EQ(Take(), id);
}

TEST_F(DaemonQueueTest, ACompletionThatDoesNotFitIsNotWrittenAndLeavesRoomForAFailure) {
  uint64_t id = 0;
  while (Complete(++id) != Written::kNo) continue;
  EXPECT_EQ(id, kAll) << "one slot is left";
  client_.Publish("refused", 1000);
  EXPECT_FALSE(queue_->HasRequest()) << "there is no room for its completion";
  EXPECT_EQ(*Serve(), 0u);
  EXPECT_EQ(Take(), 0u);
  ASSERT_EQ(client_.Reap()->header.id, 1u);
  EXPECT_TRUE(queue_->HasRequest());
  EXPECT_EQ(*Serve(), 1u);
  for (uint64_t i = 2; i < kAll; ++i) ASSERT_EQ(client_.Reap()->header.id, i);
  EXPECT_EQ(client_.Reap()->header.id, 1000u);
  EXPECT_EQ(Complete(1, std::string(Format::kPayloadBytesMax + 1, 'x')), Written::kNo);
}

TEST_F(DaemonQueueTest, AnImpossibleHeadEndsIt) {
  for (const uint64_t head : {kAll + 1, ~uint64_t{0}, uint64_t{1} << 63}) {
    const auto queue = *SessionQueue::Create(1);
    const auto files = *queue->Export();
    QueueClient client(files[0], files[1]);
    ASSERT_TRUE(queue->Seal([] {}).ok());
    Store(client.own().progress.head, head, std::memory_order_release);
    session_queue::Entry entry;
    EXPECT_EQ(queue->Take(entry).status().code(), Code::kInvalidArgument);
    EXPECT_FALSE(queue->HasRequest()) << "no further request is taken";
    EXPECT_EQ(*queue->ServePublishes(kAll, Others::kDefer, [](uint64_t, auto) { return Ok(); }), 0u);
  }
}

TEST_F(DaemonQueueTest, AnImpossibleLengthEndsIt) {
  client_.Publish("", 1);
  Store(client_.own().slots[0], uint64_t{200} << 16, std::memory_order_relaxed);  // one slot holds 112 bytes
  EXPECT_EQ(Serve().status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(queue_->HasRequest());
}

// If an entry changes while it is copied, the copy still has the length that was checked.
TEST(HostileQueueTest, ASessionThatWritesDuringAReadCorruptsOnlyItsOwnRequests) {
  uint64_t taken = 0, refused = 0;
  for (uint64_t round = 0; round < 100; ++round) {
    const auto queue = *SessionQueue::Create(1);
    const auto files = *queue->Export();
    QueueClient client(files[0], files[1]);
    ASSERT_TRUE(queue->Seal([] {}).ok());
    std::atomic<bool> stop{false};
    std::atomic<bool> writes{false};
    std::thread writer([&] {
      for (uint64_t i = round; !stop; ++i, writes = true) {
        const uint64_t word = i % 3 == 0 ? i << 16 : i * 0x9E3779B97F4A7C15;
        Store(client.own().slots[i % 64], word % (uint64_t{5000} << 16), std::memory_order_relaxed);
        Store(client.own().progress.head, client.taken() + i % 40, std::memory_order_release);
      }
    });
    while (!writes) std::this_thread::yield();
    session_queue::Entry entry;
    for (int i = 0; i < 2000; ++i) {
      const auto got = queue->Take(entry);
      if (!got.ok()) {
        ++refused;
        break;
      }
      if (!*got) continue;
      ++taken;
      ASSERT_LE(session_queue::PayloadOf(entry).size(), Format::kPayloadBytesMax);
    }
    stop = true;
    writer.join();
  }
  EXPECT_GT(taken, 0u);
  EXPECT_GT(refused, 0u);
}

TEST_F(DaemonQueueTest, TheDaemonDoesNotSleepWhileThereIsARequest) {
  EXPECT_TRUE(client_.daemon_sleeps()) << "a new page states it";
  client_.Submit(Verb::kList, "", 1);
  EXPECT_TRUE(client_.DoorbellIsDue());
  EXPECT_FALSE(client_.DoorbellIsDue()) << "once for each sleep";
  queue_->Wake();
  client_.Submit(Verb::kList, "", 2);
  EXPECT_FALSE(client_.DoorbellIsDue());
  queue_->Announce();
  EXPECT_TRUE(queue_->HasRequest()) << "so the daemon does not sleep";
  queue_->Wake();
  EXPECT_EQ(Take(), 1u);
  EXPECT_EQ(Take(), 2u);
  queue_->Announce();
  EXPECT_FALSE(queue_->HasRequest());
  client_.Submit(Verb::kList, "", 3);
  EXPECT_TRUE(client_.DoorbellIsDue());
}

TEST_F(DaemonQueueTest, AClientThatSleepsIsWokenOnceForEachSleep) {
  client_.Announce();
  EXPECT_EQ(Complete(1), Written::kDoorbellIsDue);
  EXPECT_EQ(Complete(2), Written::kYes);
  client_.Announce();
  client_.Publish("a", 3);
  EXPECT_EQ(*Serve(), 1u);
  EXPECT_EQ(doorbells_, 1) << "the client may wait until the request is served";
  client_.Announce();
  client_.Submit(Verb::kList, "", 4);
  EXPECT_EQ(Take(), 4u);
  EXPECT_EQ(doorbells_, 1);
  queue_->Finish();
  EXPECT_EQ(doorbells_, 2) << "the client may wait for room";
  client_.Announce();
  client_.Publish("refused", 5);
  EXPECT_EQ(*Serve(), 1u);
  EXPECT_EQ(doorbells_, 3) << "a sleeping client must read its completion";
}

TEST_F(DaemonQueueTest, NoRequestIsTakenAfterStop) {
  client_.Submit(Verb::kList, "", 1);
  client_.Publish("a", 2);
  queue_->Stop();
  EXPECT_EQ(Take(), 0u);
  EXPECT_EQ(*Serve(kAll, Others::kDefer), 0u);
  EXPECT_EQ(client_.taken(), 0u) << "so the client knows that neither request will be served";
  EXPECT_EQ(Complete(1), Written::kNo);
}

TEST_F(DaemonQueueTest, AfterItIsMappedNoOtherProcessCanGetIt) {
  EXPECT_EQ(queue_->Export().status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(queue_->Seal({}).ok()) << "again";
  client_.Submit(Verb::kList, "", 1);
  client_.Announce();
  EXPECT_EQ(Take(), 1u);
  queue_->Finish();
  EXPECT_EQ(doorbells_, 1) << "only the first session's";
}

TEST(UnsealedQueueTest, NoRequestIsTakenBeforeTheSealAndTheMemoryStays) {
  const auto queue = *SessionQueue::Create(1);
  const auto files = *queue->Export();
  const UniqueFd& requests = files[0];
  const UniqueFd& completions = files[1];
  constexpr size_t kPageBytes = sizeof(session_queue::Page);
  QueueClient client(requests, completions);
  client.Publish("early", 1);
  EXPECT_FALSE(queue->HasRequest());
  EXPECT_EQ(*queue->ServePublishes(kAll, Others::kDefer, [](uint64_t, auto) { return Ok(); }), 0u);
  EXPECT_EQ(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, completions.get(), 0), MAP_FAILED);
  ASSERT_EQ(::fallocate(requests.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageBytes), 0);
  ASSERT_TRUE(queue->Seal([] {}).ok());
  EXPECT_EQ(::ftruncate(requests.get(), 0), -1);
  EXPECT_EQ(::fallocate(requests.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageBytes), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, requests.get(), 0), MAP_FAILED);
  EXPECT_FALSE(queue->HasRequest()) << "the session punched out what it had written before";
}

// A thread that looks for a name waits for the thread that is publishing it.
TEST_F(DaemonQueueTest, TwoThreadsServeEachPublishOnceAndInOrder) {
  constexpr uint64_t kRounds = 20'000;
  std::atomic<uint64_t> next{1};
  std::atomic<uint64_t> wrong{0};
  const auto serve = [&](Others others) {
    while (next.load() <= kRounds) {
      const auto served = queue_->ServePublishes(16, others, [&](uint64_t, std::string_view message) {
        if (message != std::to_string(next.load())) wrong.fetch_add(1);
        next.fetch_add(1);
        return Ok();
      });
      ASSERT_TRUE(served.ok());
    }
  };
  std::thread door(serve, Others::kStop);
  std::thread other(serve, Others::kDefer);
  for (uint64_t id = 1; id <= kRounds; ++id) {
    while (!client_.Publish(std::to_string(id), id)) std::this_thread::yield();
  }
  door.join();
  other.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(client_.served(), kRounds);
}

TEST_F(DaemonQueueTest, WhileAnotherThreadServesNoPublishIsMissed) {
  constexpr uint64_t kRounds = 20'000;
  std::atomic<uint64_t> submitted{0}, published{0}, missed{0};
  std::atomic<bool> over{false};
  std::thread door([&] {
    while (published.load() < kRounds) {
      static_cast<void>(queue_->Take(entry_));
      const auto publish = [&](uint64_t id, std::string_view) { return published.store(id), Ok(); };
      ASSERT_TRUE(queue_->ServePublishes(16, Others::kStop, publish).ok());
    }
  });
  std::thread other([&] {
    while (!over.load()) {
      const uint64_t before = submitted.load();
      if (!queue_->MayHavePublish() && published.load() < before) missed.fetch_add(1);
    }
  });
  for (uint64_t id = 1; id <= kRounds; ++id) {
    while (id % 3 == 0 && !client_.Submit(Verb::kList, "", 0)) std::this_thread::yield();
    while (!client_.Publish(std::string(id % 300, 'm'), id)) std::this_thread::yield();
    submitted.store(id);
  }
  door.join();
  over.store(true);
  other.join();
  EXPECT_EQ(missed.load(), 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
