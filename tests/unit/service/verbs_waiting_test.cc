// SPDX-License-Identifier: Apache-2.0
// Verbs that may wait: for memory, for a name, for a seal.
#include <gmock/gmock.h>

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/boundary/fence.h"
#include "tests/unit/broker/fake_gpu_backend.h"
#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

class VerbsWaitingTest : public VerbsTest {};

TEST_F(VerbsWaitingTest, ANameThatComesLaterAnswersWhoWaits) {
  const Caller maker = Open();
  const Caller reader = Open();
  auto waits = StartAcquire(reader, {"x", "y"}, 60'000);
  EXPECT_NE(waits->waiter, WaiterId{});
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(door().GetStats(maker, {})->message.waiting(), 1u) << "all or none";
  ASSERT_TRUE(Publish(maker, arena, "y", 4096).ok());
  EXPECT_EQ(waits->Get()->message.shares_size(), 2);
}

TEST_F(VerbsWaitingTest, ANameThatNeverComesIsNamedAtTheDeadline) {
  const auto answer = StartAcquire(Open(), {"godot"}, 5)->Get();
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(answer.status().message(), HasSubstr("godot"));
}

TEST_F(VerbsWaitingTest, WhoAsksForAnIdThatIsGoneDoesNotWait) {
  v1::AcquireRequest request;
  request.add_shares()->set_name("godot");
  request.add_shares()->set_id(99);
  request.set_timeout_ms(60'000);
  EXPECT_EQ(door().Acquire(Open(), request)->Get().status().code(), Code::kNotFound);
}

TEST_F(VerbsWaitingTest, NobodyWaitsLongerThanTheLimit) {
  config_.limits.request_timeout_max = std::chrono::milliseconds(5);
  const Caller caller = Open();
  EXPECT_EQ(StartAcquire(caller, {"godot"}, ~0ull)->Get().status().code(), Code::kDeadlineExceeded);
  ASSERT_TRUE(StartAllocate(caller, 64 * kMiB)->Get().ok());
  EXPECT_EQ(StartAllocate(caller, kMiB, ~0ull)->Get().status().code(), Code::kResourceExhausted);
}

TEST_F(VerbsWaitingTest, QueuedRequestsAreBounded) {
  config_.limits.requests_per_session = 2;
  const Caller caller = Open();
  auto first = StartAcquire(caller, {"a"}, 60'000);
  auto second = StartAcquire(caller, {"b"}, 60'000);
  const auto third = StartAcquire(caller, {"c"}, 60'000)->Get();
  EXPECT_THAT(third.status().message(), HasSubstr("has 2 requests waiting, the most is 2"));
  const auto fourth = StartAllocate(caller, kMiB)->Get();
  EXPECT_THAT(fourth.status().message(), HasSubstr("has 2 requests waiting, the most is 2"));
  verbs().Cancel(first->waiter);
  EXPECT_TRUE(StartAllocate(caller, kMiB)->Get().ok());
}

TEST_F(VerbsWaitingTest, FullMemoryIsToldWithItsNumbersAtTheDeadline) {
  const Caller caller = Open();
  ASSERT_TRUE(StartAllocate(caller, 64 * kMiB)->Get().ok());
  const auto refused = StartAllocate(caller, kMiB, 5)->Get();
  ASSERT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("0 are left of its quota of 64.0 MiB"));
}

TEST_F(VerbsWaitingTest, TheEndOfASessionFeedsWhoWaitsInOrder) {
  const Caller hog = Open();
  ASSERT_TRUE(StartAllocate(hog, 64 * kMiB)->Get().ok());
  const Caller one = Open();
  const Caller two = Open();
  auto first = StartAllocate(one, 32 * kMiB, 60'000);
  auto second = StartAllocate(two, 32 * kMiB, 60'000);
  verbs().sessions.EndSession(hog.session);
  const auto first_arena = first->Get();
  const auto second_arena = second->Get();
  ASSERT_TRUE(first_arena.ok() && second_arena.ok());
  EXPECT_LT(first_arena->message.handle().arena(), second_arena->message.handle().arena());
  EXPECT_FALSE(verbs().memory_wanted(1000));
}

TEST_F(VerbsWaitingTest, MemoryThatSomebodyStillMapsIsReclaimedOnceHeLetsGo) {
  const Caller hog = Open();
  auto arena = StartAllocate(hog, 64 * kMiB)->Get();
  ASSERT_TRUE(arena.ok());
  auto waits = StartAllocate(Open(), kMiB, 60'000);
  verbs().sessions.EndSession(hog.session);
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(verbs().memory_wanted(1000)) << "its descriptor is open, so the bytes still exist";
  arena->descriptor.reset();
  EXPECT_TRUE(waits->Get().ok());
}

TEST_F(VerbsWaitingTest, AWaiterIsAnsweredByItsOwnReturnedRanges) {
  config_.namespace_quota_bytes = 2 * kMiB;
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, 2 * kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x", 0, 2 * kMiB).ok());
  auto waits = StartAllocate(maker, kMiB, 60'000);
  const Caller other = Open();
  Withdraw(other, "x");  // the answer returns no range, because the arena is another session's
  const auto answer = waits->Get();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_FALSE(answer->message.has_handle());
  ASSERT_EQ(answer->message.returned_size(), 1);
  EXPECT_EQ(answer->message.returned(0).size(), 2 * kMiB);
}

// GPU memory whose bytes come with an event that only its maker can wait for.
class VerbsFenceTest : public VerbsWaitingTest {
 protected:
  VerbsFenceTest() { backend_ = std::make_unique<FakeGpuBackend>(HandleKind::kCudaVmm); }

  Caller OpenGpu(const std::string& boot_id) {
    v1::OpenSessionRequest hello;
    hello.set_protocol_min(1);
    hello.set_protocol_max(1);
    hello.set_process_id(4711);
    v1::ClientCapabilities& capabilities = *hello.mutable_capabilities();
    capabilities.add_kinds(v1::HANDLE_KIND_CUDA_VMM);
    capabilities.set_boot_id(boot_id);
    capabilities.set_pid_namespace(7);
    capabilities.set_shm_device(8);
    Peer peer;
    peer.uid = 1000;
    const auto opened = verbs().sessions.OpenSession(As<wire::OpenSessionRequest>(hello), std::move(peer));
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return {SessionId{opened->session()}, Door::kLifeline};
  }
  uint64_t PublishPending(const Caller& maker) {
    v1::AllocateRequest allocate;
    allocate.mutable_device()->set_type(kDeviceCuda);
    allocate.set_size(4096);
    const auto arena = door().Allocate(maker, allocate)->Get();
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    v1::MappedRequest mapped;
    mapped.set_arena(arena->message.handle().arena());
    EXPECT_TRUE(door().Mapped(maker, mapped).ok());
    v1::PublishRequest request = PublishOf(arena->message.handle(), "late", false, 0, 256);
    request.mutable_fence()->set_kind(v1::Fence::EVENT);
    request.mutable_fence()->set_opaque(std::string(64, 'e'));
    const auto published = door().Publish(maker, request);
    EXPECT_TRUE(published.ok()) << published.status().ToString();
    return published->message.share();
  }
  std::unique_ptr<Awaited<v1::AcquireResponse>> StartRead(const Caller& caller, uint64_t fence_timeout_ms,
                                                          uint64_t timeout_ms = 0) {
    v1::AcquireRequest request;
    request.add_shares()->set_name("late");
    request.set_fence_timeout_ms(fence_timeout_ms);
    request.set_timeout_ms(timeout_ms);
    return door().Acquire(caller, request);
  }
};

TEST_F(VerbsFenceTest, WhoCannotWaitLongIsToldWhoMakesTheBytes) {
  const Caller maker = OpenGpu("here");
  PublishPending(maker);
  const auto begun = Clock::now();
  const Status refused = StartRead(OpenGpu("elsewhere"), 20)->Get().status();
  EXPECT_GE(Clock::now() - begun, std::chrono::milliseconds(20));
  EXPECT_EQ(refused.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(refused.reason(), "FENCE_PENDING");
  const std::map<std::string, std::string> told(refused.metadata().begin(), refused.metadata().end());
  EXPECT_EQ(told.at("share"), "late");
  EXPECT_EQ(told.at("device"), kGpu.uuid);
  EXPECT_EQ(told.at("fence"), "event");
  EXPECT_EQ(told.at("maker_session"), std::to_string(Number(maker.session)));
  EXPECT_EQ(told.at("maker_process_id"), "4711");
  EXPECT_EQ(told.at("maker_uid"), "1000");
  EXPECT_THAT(refused.message(), HasSubstr("share 'late'"));
}

TEST_F(VerbsFenceTest, WhoSaysNothingOrALongTimeWaitsAsLongAsEverybody) {
  const Caller maker = OpenGpu("here");
  const uint64_t share = PublishPending(maker);
  auto silent = StartRead(OpenGpu("elsewhere"), 0);
  auto patient = StartRead(OpenGpu("elsewhere"), ~0ull);
  auto named = StartRead(OpenGpu("elsewhere"), 1, 60'000);
  const auto hasty = StartRead(OpenGpu("elsewhere"), 50)->Get();
  EXPECT_EQ(hasty.status().reason(), "FENCE_PENDING");
  for (const auto* const waiting : {&silent, &patient, &named}) {
    EXPECT_NE((*waiting)->future.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  }
  v1::ReleaseRequest release;
  release.add_done(share);
  ASSERT_TRUE(door().Release(maker, release).ok());
  for (auto* const waiting : {&silent, &patient, &named}) EXPECT_TRUE((*waiting)->Get().ok());
}

TEST_F(VerbsFenceTest, ABrokerIsNoMorePatientThanItSays) {
  PublishPending(OpenGpu("here"));
  const auto begun = Clock::now();
  EXPECT_EQ(StartRead(OpenGpu("elsewhere"), ~0ull)->Get().status().reason(), "FENCE_PENDING");
  EXPECT_GE(Clock::now() - begun, kFenceWait);
}

// Between the drop of its waiters and its end a session must not get another waiter.
TEST_F(VerbsWaitingTest, NobodyWaitsInASessionThatEnds) {
  const Caller caller = Open();
  const v1::Handle all = Arena(caller, 64 * kMiB);
  ASSERT_NE(all.arena(), 0u);
  std::optional<WaiterId> late;
  v1::AllocateRequest request;
  request.set_size(kMiB);
  request.set_timeout_ms(60'000);
  // The reply of a dropped waiter is destroyed; at this moment another request of the session arrives.
  const auto ask = [&](std::function<void(Result<Answered<v1::AllocateResponse>>)> heard) {
    return Ask<v1::AllocateResponse>(verbs(), caller, Verb::kAllocate, request, std::move(heard));
  };
  std::shared_ptr<void> dropped(nullptr, [&](void*) { late = ask([](auto) {}); });
  ask([last = std::move(dropped)](auto) {});
  verbs().WaitIdle(Clock::time_point::max());
  verbs().sessions.EndSession(caller.session);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(*late, WaiterId{}) << "the request waits although its session has ended";
}

TEST_F(VerbsWaitingTest, ManyWhoAskAtOnceAreServedTogether) {
  const auto world = FakeMemory(8 * kMiB);
  std::promise<void> busy;
  std::promise<void> go_on;
  on_allocated_ = [&] {
    busy.set_value();
    go_on.get_future().wait();
  };
  const Caller caller = Open();
  auto first = StartAllocate(caller, kMiB);
  busy.get_future().wait();  // the slow thread
  world->allocate_fails = true;
  std::vector<std::unique_ptr<Awaited<v1::AllocateResponse>>> waiting;
  for (int i = 0; i < 10; ++i) waiting.push_back(StartAllocate(caller, kMiB, 60'000));
  const uint64_t before = world->allocations.load();
  go_on.set_value();
  verbs().WaitIdle(Clock::time_point::max());
  // The first waiter is tried by the current round, and by the one task that was posted meanwhile.
  EXPECT_LE(world->allocations.load() - before, 2u) << "one task per waiter was posted";
}

// A request waits for memory that a process still holds without a name: the broker looks at it with a back-off, not in
// a loop.
TEST_F(VerbsWaitingTest, WhoWaitsForMemoryDoesNotMakeTheSlowThreadSpin) {
  const auto world = FakeMemory(kMiB);
  const Caller caller = Open();
  const v1::Handle arena = Arena(caller, kMiB);
  world->held = true;
  v1::ReleaseRequest release;
  release.add_arenas(arena.arena());
  ASSERT_TRUE(door().Release(caller, release).ok());
  const auto begun = Clock::now();
  EXPECT_EQ(StartAllocate(caller, kMiB, 200)->Get().status().code(), Code::kResourceExhausted);
  const auto grains = static_cast<uint64_t>((Clock::now() - begun) / std::chrono::milliseconds(50));
  // The sweep of Release, the one of the waiter, and one of the waiter for each sweep that a timer starts.
  EXPECT_LE(world->hazard_checks.load(), 2 * (grains + 2));
  world->held = false;
}

// Other programs, such as frameworks with their own allocators, free memory without telling the broker.
TEST_F(VerbsWaitingTest, WhatOthersOfTheMachineGiveBackIsFoundInOrder) {
  const auto world = FakeMemory(8 * kMiB);
  world->machine_is_full = true;
  const Caller caller = Open();
  auto first = StartAllocate(caller, kMiB, 60'000);
  auto second = StartAllocate(caller, kMiB, 60'000);
  verbs().WaitIdle(Clock::time_point::max());
  EXPECT_GE(world->allocations.load(), 1u);
  world->machine_is_full = false;
  const auto first_arena = first->Get();
  const auto second_arena = second->Get();
  ASSERT_TRUE(first_arena.ok()) << first_arena.status().ToString();
  ASSERT_TRUE(second_arena.ok()) << second_arena.status().ToString();
  EXPECT_LT(first_arena->message.handle().arena(), second_arena->message.handle().arena());
}

TEST_F(VerbsWaitingTest, AMachineThatStaysFullIsAskedNowAndThenAndNamedAtTheDeadline) {
  const auto world = FakeMemory(8 * kMiB);
  world->machine_is_full = true;
  const auto begun = Clock::now();
  const auto refused = StartAllocate(Open(), kMiB, 350)->Get();
  const auto grains = static_cast<uint64_t>((Clock::now() - begun) / std::chrono::milliseconds(100));
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("the driver: CUDA_ERROR_OUT_OF_MEMORY (2): 1048576 bytes"));
  EXPECT_GE(world->allocations.load(), 2u) << "it was tried only once";
  EXPECT_LE(world->allocations.load(), grains + 2) << "it was tried in a loop";
}

// Populating 2 GiB takes a second. Only requests behind it in its namespace wait for it.
TEST_F(VerbsWaitingTest, AnArenaThatTakesLongToPopulateIsNobodyElsesWait) {
  constexpr uint64_t kLarge = 2048 * kMiB;
  const auto world = FakeMemory(4096 * kMiB);
  std::promise<void> populating;
  std::promise<void> go_on;
  world->on_allocate = [&](uint64_t size) {
    if (size < kLarge) return;
    populating.set_value();
    go_on.get_future().wait();
  };
  const Caller caller = Open();
  auto large = StartAllocate(caller, kLarge);
  populating.get_future().wait();
  auto behind = StartAllocate(caller, 2 * kMiB);
  EXPECT_TRUE(StartAllocate(Open(Door::kLifeline, 1001), 2 * kMiB)->Get().ok()) << "another user";
  EXPECT_TRUE(StartAllocate(caller, 2 * kMiB, 0, "other")->Get().ok()) << "another namespace";
  EXPECT_NE(behind->future.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "it overtook";
  go_on.set_value();
  EXPECT_TRUE(large->Get().ok());
  EXPECT_TRUE(behind->Get().ok());
}

// The kernel may sleep during a permanent seal (pinned pages); other requests must not wait for it.
TEST_F(VerbsWaitingTest, ASealThatTakesItsTimeIsNobodyElsesWait) {
  const auto world = FakeMemory(8 * kMiB);
  std::promise<void> sealing;
  std::promise<void> go_on;
  world->on_final_seal = [&] {
    sealing.set_value();
    go_on.get_future().wait();
  };
  const Caller caller = Open();
  const v1::Handle arena = Arena(caller, kMiB);
  const v1::Handle other = Arena(caller, kMiB);
  const auto published = door().Send(caller, PublishOf(arena, "sealed", true));
  sealing.get_future().wait();
  EXPECT_TRUE(StartAllocate(caller, kMiB)->Get().ok());
  EXPECT_TRUE(Publish(caller, other, "not sealed").ok());
  EXPECT_TRUE(StartAcquire(caller, {"not sealed"})->Get().ok());
  EXPECT_EQ(StartAcquire(caller, {"sealed"})->Get().status().code(), Code::kNotFound);
  auto waits = StartAcquire(caller, {"sealed"}, 60'000);
  go_on.set_value();
  const auto answer = published->Get();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->message.immutability(), v1::IMMUTABILITY_ENFORCED);
  EXPECT_TRUE(waits->Get().ok());
}

}  // namespace
}  // namespace arraybridge::daemon
