#include "daemon/service/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <future>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/memory/host_backend.h"
#include "proto/boundary/frame.h"
#include "tests/unit/broker/fake_backend.h"

namespace arraybridge {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class VerbsTest : public ::testing::Test {
 protected:
  Verbs& verbs() {
    if (!broker_) {
      broker_.emplace(config_, std::vector<MemoryBackend*>{backend_.get()});
      verbs_.emplace(config_, *broker_, [this] {
        ++allocated_;
        if (on_allocated_) on_allocated_();
      });
    }
    return *verbs_;
  }
  Caller Open(Door door = Door::kLifeline, uint32_t uid = 1000) {
    v1::OpenSessionRequest hello;
    hello.set_protocol_min(1);
    hello.set_protocol_max(1);
    Peer peer;
    peer.uid = uid;
    peer.door = door;
    const auto opened = verbs().OpenSession(hello, peer);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return {SessionId{opened.ok() ? opened->session() : 0}, door};
  }

  template <class Message>
  struct Awaited {
    std::promise<Result<Answer<Message>>> promise;
    std::future<Result<Answer<Message>>> future = promise.get_future();
    WaiterId waiter{};
    Result<Answer<Message>> Get() { return future.get(); }
  };
  std::unique_ptr<Awaited<v1::AllocateResponse>> StartAllocate(const Caller& caller, uint64_t size,
                                                               uint64_t timeout_ms = 0, const std::string& ns = {}) {
    v1::AllocateRequest request;
    request.set_namespace_(ns);
    request.set_size(size);
    request.set_timeout_ms(timeout_ms);
    auto awaited = std::make_unique<Awaited<v1::AllocateResponse>>();
    awaited->waiter = verbs().Allocate(caller, request,
                                       [a = awaited.get()](auto answer) { a->promise.set_value(std::move(answer)); });
    return awaited;
  }
  // An arena as its producer has it: mapped, sealed, its descriptor closed. The mapping dies at once.
  v1::Handle Arena(const Caller& caller, uint64_t size) {
    auto answer = StartAllocate(caller, size)->Get();
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    if (!answer.ok()) return {};
    answer->descriptor.reset();
    v1::MappedRequest mapped;
    mapped.set_arena(answer->message.handle().arena());
    EXPECT_TRUE(verbs().Mapped(caller, mapped).ok());
    return answer->message.handle();
  }
  Result<Answer<v1::PublishResponse>> Publish(const Caller& caller, const v1::Handle& arena, const std::string& name,
                                              uint64_t offset = 0, uint64_t size = 4096, size_t metadata = 0) {
    v1::PublishRequest request = PublishOf(arena, name, false, offset, size);
    request.set_metadata(std::string(metadata, 'm'));
    return verbs().Publish(caller, request);
  }
  static v1::PublishRequest PublishOf(const v1::Handle& arena, const std::string& name, bool sealed,
                                      uint64_t offset = 0, uint64_t size = 4096) {
    v1::PublishRequest request;
    request.set_sealed(sealed);
    request.set_name(name);
    request.set_arena(arena.arena());
    request.set_arena_generation(arena.generation());
    request.set_offset(offset);
    request.set_size(size);
    v1::ArraySpec* spec = request.mutable_specs()->add_arrays();
    spec->set_bits(8);
    spec->set_lanes(1);
    spec->set_dtype("uint8");
    spec->add_shape(static_cast<int64_t>(size));
    spec->set_size(size);
    return request;
  }
  std::unique_ptr<Awaited<v1::AcquireResponse>> StartAcquire(const Caller& caller,
                                                             const std::vector<std::string>& names,
                                                             uint64_t timeout_ms = 0) {
    v1::AcquireRequest request;
    for (const std::string& name : names) request.add_shares()->set_name(name);
    request.set_timeout_ms(timeout_ms);
    auto awaited = std::make_unique<Awaited<v1::AcquireResponse>>();
    awaited->waiter =
        verbs().Acquire(caller, request, [a = awaited.get()](auto answer) { a->promise.set_value(std::move(answer)); });
    return awaited;
  }
  void Withdraw(const Caller& caller, const std::string& name) {
    v1::WithdrawRequest request;
    request.add_shares()->set_name(name);
    EXPECT_TRUE(verbs().Withdraw(caller, request).ok());
  }

  // Memory without bytes. REQUIRES: no verbs yet.
  std::shared_ptr<FakeWorld> FakeMemory(uint64_t capacity) {
    auto fake = std::make_unique<FakeBackend>(capacity);
    auto world = fake->world;
    backend_ = std::move(fake);
    return world;
  }

  Config config_;
  std::unique_ptr<MemoryBackend> backend_ = MakeHostBackend({64 * kMiB, false});
  std::atomic<int> allocated_{0};
  std::function<void()> on_allocated_;  // on the slow thread
  std::optional<Broker> broker_;
  std::optional<Verbs> verbs_;
};

TEST_F(VerbsTest, WhatIsPublishedIsAcquiredWithItsSpecs) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  const Caller reader = Open();
  auto acquired = StartAcquire(reader, {"x"})->Get();
  ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
  EXPECT_TRUE(acquired->descriptor.valid());
  EXPECT_EQ(acquired->message.descriptor_arena(), arena.arena());
  const v1::Share& share = acquired->message.shares(0).share();
  EXPECT_EQ(share.name(), "x");
  EXPECT_EQ(share.handle().size(), 4096u);
  EXPECT_EQ(share.specs().arrays(0).dtype(), "uint8");
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));  // it runs after the answer
  EXPECT_EQ(allocated_.load(), 1);
}

TEST_F(VerbsTest, AtTheGrpcDoorADescriptorIsATicket) {
  const Caller maker = Open(Door::kGrpc);
  auto arena = StartAllocate(maker, kMiB)->Get();
  ASSERT_TRUE(arena.ok());
  EXPECT_FALSE(arena->descriptor.valid());
  v1::RedeemRequest redeem;
  redeem.set_token(arena->message.ticket().token());
  auto redeemed = verbs().Redeem(maker, redeem);
  ASSERT_TRUE(redeemed.ok());
  EXPECT_TRUE(redeemed->descriptor.valid());
  EXPECT_TRUE(redeemed->message.writable());
  EXPECT_EQ(verbs().Redeem(maker, redeem).status().code(), Code::kNotFound);
}

TEST_F(VerbsTest, WithoutRoomForItsTicketAnArenaIsNotKept) {
  config_.limits.tickets_per_session_max = 1;
  const Caller maker = Open(Door::kGrpc);
  ASSERT_TRUE(StartAllocate(maker, kMiB)->Get().ok());
  const auto second = StartAllocate(maker, kMiB)->Get();
  ASSERT_EQ(second.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("tickets_per_session_max"));
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(verbs().GetStats(maker, {})->message.arenas(), 1u);
}

TEST_F(VerbsTest, ANameThatComesLaterAnswersWhoWaits) {
  const Caller maker = Open();
  const Caller reader = Open();
  auto waits = StartAcquire(reader, {"x", "y"}, 60'000);
  EXPECT_NE(waits->waiter, WaiterId{});
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(verbs().GetStats(maker, {})->message.waiting(), 1u) << "all or none";
  ASSERT_TRUE(Publish(maker, arena, "y", 4096).ok());
  EXPECT_EQ(waits->Get()->message.shares_size(), 2);
}

TEST_F(VerbsTest, ANameThatNeverComesIsNamedAtTheDeadline) {
  const auto answer = StartAcquire(Open(), {"godot"}, 5)->Get();
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(answer.status().message(), HasSubstr("godot"));
}

TEST_F(VerbsTest, WhoAsksForAnIdThatIsGoneDoesNotWait) {
  v1::AcquireRequest request;
  request.add_shares()->set_name("godot");
  request.add_shares()->set_id(99);
  request.set_timeout_ms(60'000);
  std::optional<Code> heard;
  verbs().Acquire(Open(), request, [&](auto answer) { heard = answer.status().code(); });
  EXPECT_EQ(heard, Code::kNotFound);
}

TEST_F(VerbsTest, ALifelineAndAMessageHoldTheSameShare) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  v1::PublishRequest publish;
  publish.set_name("x");
  publish.set_arena(arena.arena());
  publish.set_arena_generation(arena.generation());
  publish.set_offset(4096);
  publish.set_size(300);
  publish.set_structure("tree");
  publish.set_metadata("mine");
  publish.mutable_fence()->set_kind(v1::Fence::EVENT);
  publish.mutable_fence()->set_opaque("event");
  v1::ArraySpec* spec = publish.mutable_specs()->add_arrays();
  spec->set_bits(8);
  spec->set_lanes(1);
  spec->set_dtype("uint8");
  spec->add_shape(300);
  spec->set_size(300);
  const v1::PublishRequest said = publish;
  const auto published = verbs().Publish(maker, publish);
  ASSERT_TRUE(published.ok()) << published.status().ToString();

  v1::AcquireRequest request;
  request.add_shares()->set_name("x");
  request.add_shares()->set_name("x");
  std::string bytes;
  ASSERT_TRUE(verbs().AcquireAtOnce(maker, request, &bytes).ok());
  v1::AcquireResponse lifeline;
  ASSERT_TRUE(lifeline.ParseFromString(bytes));
  ASSERT_EQ(lifeline.shares_size(), 2);
  EXPECT_NE(lifeline.shares(0).lease(), lifeline.shares(1).lease());
  const v1::Share& share = lifeline.shares(1).share();
  EXPECT_EQ(share.id(), published->message.share());
  EXPECT_EQ(share.generation(), published->message.generation());
  EXPECT_EQ(share.namespace_(), "default");
  EXPECT_EQ(share.name(), "x");
  EXPECT_EQ(share.immutability(), v1::IMMUTABILITY_BY_CONTRACT);
  EXPECT_EQ(share.specs().SerializeAsString(), said.specs().SerializeAsString());
  EXPECT_EQ(share.fence().SerializeAsString(), said.fence().SerializeAsString());
  EXPECT_EQ(share.structure(), "tree");
  EXPECT_EQ(share.metadata(), "mine");
  EXPECT_EQ(share.handle().arena(), arena.arena());
  EXPECT_EQ(share.handle().generation(), arena.generation());
  EXPECT_EQ(share.handle().offset(), 4096u);
  EXPECT_EQ(share.handle().size(), 300u);
  EXPECT_EQ(share.handle().arena_size(), arena.arena_size());
  EXPECT_EQ(share.handle().device().type(), kDeviceCpu);
  EXPECT_FALSE(share.unnamed());

  auto grpc = StartAcquire(Open(Door::kGrpc), {"x"})->Get();
  ASSERT_TRUE(grpc.ok());
  EXPECT_EQ(grpc->message.tickets_size(), 1);
  EXPECT_EQ(grpc->message.shares(0).share().SerializeAsString(), share.SerializeAsString());
  v1::ListRequest list;
  EXPECT_EQ(verbs().List(maker, list)->message.shares(0).share().SerializeAsString(), share.SerializeAsString());
}

TEST_F(VerbsTest, UnknownFieldsAsDeepAsAParserTakesThemDoNoHarm) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  constexpr int kDepth = 97;
  std::string groups(kDepth, '\x7b');  // field 15: so many begin
  groups.append(kDepth, '\x7c');       // and end
  v1::ArraySpec known;
  known.set_bits(8);
  known.set_lanes(1);
  v1::PublishRequest publish;
  publish.set_name("x");
  publish.set_arena(arena.arena());
  publish.set_arena_generation(arena.generation());
  publish.set_size(256);
  ASSERT_TRUE(publish.mutable_specs()->add_arrays()->ParseFromString(known.SerializeAsString().append(groups)));
  ASSERT_TRUE(v1::PublishRequest().ParseFromString(publish.SerializeAsString())) << "as a door would";
  ASSERT_TRUE(verbs().Publish(maker, publish).ok());
  EXPECT_TRUE(StartAcquire(maker, {"x"})->Get().ok());
}

TEST_F(VerbsTest, WhatComesBackIsKeptForWhoHears) {
  Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  v1::WithdrawRequest withdraw;
  withdraw.add_shares()->set_name("x");
  maker.hears = false;
  EXPECT_EQ(verbs().Withdraw(maker, withdraw)->message.returned_size(), 0);
  EXPECT_EQ(verbs().Release(maker, {})->message.returned_size(), 0);
  maker.hears = true;
  EXPECT_EQ(verbs().Release(maker, {})->message.returned_size(), 1);
}

TEST_F(VerbsTest, NobodyWaitsLongerThanTheLimit) {
  config_.limits.request_timeout_max = std::chrono::milliseconds(5);
  const Caller caller = Open();
  EXPECT_EQ(StartAcquire(caller, {"godot"}, ~0ull)->Get().status().code(), Code::kDeadlineExceeded);
  ASSERT_TRUE(StartAllocate(caller, 64 * kMiB)->Get().ok());
  EXPECT_EQ(StartAllocate(caller, kMiB, ~0ull)->Get().status().code(), Code::kResourceExhausted);
}

TEST_F(VerbsTest, QueuedRequestsAreBounded) {
  config_.limits.queued_requests_per_session = 2;
  const Caller caller = Open();
  auto first = StartAcquire(caller, {"a"}, 60'000);
  auto second = StartAcquire(caller, {"b"}, 60'000);
  const auto third = StartAcquire(caller, {"c"}, 60'000)->Get();
  EXPECT_THAT(third.status().message(), HasSubstr("queued_requests_per_session"));
  const auto fourth = StartAllocate(caller, kMiB)->Get();
  EXPECT_THAT(fourth.status().message(), HasSubstr("queued_requests_per_session"));
  verbs().Cancel(first->waiter);
  EXPECT_TRUE(StartAllocate(caller, kMiB)->Get().ok());
}

TEST_F(VerbsTest, FullMemoryIsToldWithItsNumbersAtTheDeadline) {
  const Caller caller = Open();
  ASSERT_TRUE(StartAllocate(caller, 64 * kMiB)->Get().ok());
  const auto refused = StartAllocate(caller, kMiB, 5)->Get();
  ASSERT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr(std::to_string(64 * kMiB)));
}

TEST_F(VerbsTest, TheEndOfASessionFeedsWhoWaitsInOrder) {
  const Caller hog = Open();
  ASSERT_TRUE(StartAllocate(hog, 64 * kMiB)->Get().ok());
  const Caller one = Open();
  const Caller two = Open();
  auto first = StartAllocate(one, 32 * kMiB, 60'000);
  auto second = StartAllocate(two, 32 * kMiB, 60'000);
  verbs().EndSession(hog.session);
  const auto first_arena = first->Get();
  const auto second_arena = second->Get();
  ASSERT_TRUE(first_arena.ok() && second_arena.ok());
  EXPECT_LT(first_arena->message.handle().arena(), second_arena->message.handle().arena());
  EXPECT_FALSE(verbs().memory_wanted(1000));
}

TEST_F(VerbsTest, MemoryThatSomebodyStillMapsIsReclaimedOnceHeLetsGo) {
  const Caller hog = Open();
  auto arena = StartAllocate(hog, 64 * kMiB)->Get();
  ASSERT_TRUE(arena.ok());
  auto waits = StartAllocate(Open(), kMiB, 60'000);
  verbs().EndSession(hog.session);
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(verbs().memory_wanted(1000)) << "its descriptor is open: the bytes are not gone";
  arena->descriptor.reset();
  EXPECT_TRUE(waits->Get().ok());
}

TEST_F(VerbsTest, AWaiterIsAnsweredByItsOwnReturnedRanges) {
  config_.namespace_quota_bytes = 2 * kMiB;
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, 2 * kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x", 0, 2 * kMiB).ok());
  auto waits = StartAllocate(maker, kMiB, 60'000);
  const Caller other = Open();
  Withdraw(other, "x");  // its answer brings nothing: the arena is not its own
  const auto answer = waits->Get();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_FALSE(answer->message.has_handle());
  ASSERT_EQ(answer->message.returned_size(), 1);
  EXPECT_EQ(answer->message.returned(0).size(), 2 * kMiB);
}

TEST_F(VerbsTest, AWithdrawBringsBackTheMakersRanges) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  v1::WithdrawRequest request;
  request.add_shares()->set_name("x");
  const auto answer = verbs().Withdraw(maker, request);
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->message.returned_size(), 1);
  EXPECT_EQ(answer->message.returned(0).size(), 4096u);
}

TEST_F(VerbsTest, AnAnswerThatNoFrameHoldsIsRefusedAndLeasesNothing) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  std::vector<std::string> names;
  for (uint64_t i = 0; i < 5; ++i) {
    names.push_back(Concat("x", i));
    ASSERT_TRUE(Publish(maker, arena, names.back(), i * 4096, 4096, config_.limits.metadata_bytes_max).ok());
  }
  const Caller reader = Open();
  const auto answer = StartAcquire(reader, names)->Get();
  ASSERT_EQ(answer.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(answer.status().message(), HasSubstr("frame_bytes_max"));
  EXPECT_EQ(verbs().GetStats(reader, {})->message.leases(), 0u);
}

TEST_F(VerbsTest, ListPagesFitIntoAFrameAndLoseNothing) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  constexpr uint64_t kShares = 20;
  for (uint64_t i = 0; i < kShares; ++i) {
    ASSERT_TRUE(Publish(maker, arena, Concat("x", i), i * 4096, 4096, config_.limits.metadata_bytes_max).ok());
  }
  std::set<std::string> seen;
  v1::ListRequest request;
  int pages = 0;
  do {
    const auto page = verbs().List(maker, request);
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    EXPECT_LE(page->message.ByteSizeLong() + sizeof(FrameHeader), kFrameBytesMax);
    for (const auto& row : page->message.shares()) EXPECT_TRUE(seen.insert(row.share().name()).second);
    request.set_page_token(page->message.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(seen.size(), kShares);
  EXPECT_GT(pages, 1);
}

TEST_F(VerbsTest, EveryKindOfListAnswers) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  ASSERT_TRUE(StartAcquire(maker, {"x"})->Get().ok());
  const auto list = [&](v1::ListRequest::Kind kind) {
    v1::ListRequest request;
    request.set_kind(kind);
    auto answer = verbs().List(maker, request);
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? answer->message : v1::ListResponse();
  };
  EXPECT_EQ(list(v1::ListRequest::SHARES).shares_size(), 1);
  EXPECT_EQ(list(v1::ListRequest::SESSIONS).sessions_size(), 1);
  EXPECT_EQ(list(v1::ListRequest::LEASES).leases_size(), 1);
  EXPECT_EQ(list(v1::ListRequest::NAMESPACES).namespaces_size(), 1);
  EXPECT_EQ(list(v1::ListRequest::DEVICES).devices_size(), 1);
}

TEST_F(VerbsTest, DrainingRefusesNewWorkAndAnswersWhoWaits) {
  const Caller caller = Open();
  const v1::Handle arena = Arena(caller, kMiB);
  auto waits = StartAcquire(caller, {"godot"}, 60'000);
  verbs().Drain();
  EXPECT_EQ(waits->Get().status().code(), Code::kUnavailable);
  EXPECT_EQ(StartAcquire(caller, {"x"})->Get().status().code(), Code::kUnavailable);
  EXPECT_EQ(StartAllocate(caller, kMiB)->Get().status().code(), Code::kUnavailable);
  EXPECT_EQ(Publish(caller, arena, "x").status().code(), Code::kUnavailable);
  EXPECT_TRUE(verbs().GetServerInfo().draining());
  EXPECT_TRUE(verbs().Release(caller, {}).ok());
}

// Between the dropping of its waiters and its end a session must not get another waiter.
TEST_F(VerbsTest, NobodyWaitsInASessionThatEnds) {
  const Caller caller = Open();
  const v1::Handle all = Arena(caller, 64 * kMiB);
  ASSERT_NE(all.arena(), 0u);
  std::optional<WaiterId> late;
  v1::AllocateRequest request;
  request.set_size(kMiB);
  request.set_timeout_ms(60'000);
  // The reply of a waiter that is dropped dies: at that very moment somebody else of the session asks.
  std::shared_ptr<void> dropped(nullptr, [&](void*) { late = verbs().Allocate(caller, request, [](auto) {}); });
  verbs().Allocate(caller, request, [last = std::move(dropped)](auto) {});
  verbs().WaitIdle(Clock::time_point::max());
  verbs().EndSession(caller.session);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(*late, WaiterId{}) << "it waits on, though nobody is there to hear the answer";
}

TEST_F(VerbsTest, ManyWhoAskAtOnceAreServedTogether) {
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
  // Whoever is first is tried by the round under way, and by the one task that was posted meanwhile.
  EXPECT_LE(world->allocations.load() - before, 2u) << "a task for each";
}

// Somebody waits for memory, somebody else holds what is nobody's any more: that is looked at now and then, with a
// back-off, not without end.
TEST_F(VerbsTest, WhoWaitsForMemoryDoesNotMakeTheSlowThreadSpin) {
  const auto world = FakeMemory(kMiB);
  const Caller caller = Open();
  const v1::Handle arena = Arena(caller, kMiB);
  world->held = true;
  v1::ReleaseRequest release;
  release.add_arenas(arena.arena());
  ASSERT_TRUE(verbs().Release(caller, release).ok());
  const auto begun = Clock::now();
  EXPECT_EQ(StartAllocate(caller, kMiB, 200)->Get().status().code(), Code::kResourceExhausted);
  const auto grains = static_cast<uint64_t>((Clock::now() - begun) / std::chrono::milliseconds(50));
  // The sweep asked for by Release, the waiter's own, and for each one that a timer begins another of the waiter.
  EXPECT_LE(world->hold_checks.load(), 2 * (grains + 2));
  world->held = false;
}

// Populating 2 GiB takes a second: it is the wait of those alone who stand behind it in its namespace.
TEST_F(VerbsTest, AnArenaThatTakesLongToPopulateIsNobodyElsesWait) {
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

// The kernel may sleep over a last seal (pinned pages): nobody else may wait for that.
TEST_F(VerbsTest, ASealThatTakesItsTimeIsNobodyElsesWait) {
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
  Awaited<v1::PublishResponse> published;
  verbs().PublishSealed(caller, PublishOf(arena, "sealed", true),
                        [&](auto answer) { published.promise.set_value(std::move(answer)); });
  sealing.get_future().wait();
  EXPECT_TRUE(StartAllocate(caller, kMiB)->Get().ok());
  EXPECT_TRUE(Publish(caller, other, "not sealed").ok());
  EXPECT_TRUE(StartAcquire(caller, {"not sealed"})->Get().ok());
  EXPECT_EQ(StartAcquire(caller, {"sealed"})->Get().status().code(), Code::kNotFound);
  auto waits = StartAcquire(caller, {"sealed"}, 60'000);
  go_on.set_value();
  const auto answer = published.Get();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->message.immutability(), v1::IMMUTABILITY_ENFORCED);
  EXPECT_TRUE(waits->Get().ok());
}

TEST_F(VerbsTest, AnotherUsersTokenJoinsNothing) {
  v1::OpenSessionRequest hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  Peer peer;
  peer.uid = 1000;
  const auto opened = verbs().OpenSession(hello, peer);
  ASSERT_TRUE(opened.ok());
  hello.set_join(opened->token());
  EXPECT_TRUE(verbs().Join(hello, peer).ok());
  peer.uid = 1001;
  const auto foreign = verbs().Join(hello, peer);
  hello.set_join(std::string(16, 'x'));
  const auto forged = verbs().Join(hello, peer);
  EXPECT_EQ(foreign.status().code(), Code::kNotFound);
  EXPECT_EQ(foreign.status().message(), forged.status().message()) << "it tells which token exists";
}

}  // namespace
}  // namespace arraybridge
