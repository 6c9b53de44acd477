// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/boundary/frame.h"
#include "tests/unit/broker/hazard_reader.h"
#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

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
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));  // the task runs after the answer
  EXPECT_EQ(allocated_.load(), 1);
}

// The session does not report the end of its hold: the broker looks by itself, also if the last lease went with a
// mapping.
TEST_F(VerbsTest, AHoldIsWatchedFromTheLastLeaseOn) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  Reader reader(*broker_, Open().session);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  auto acquired = StartAcquire(maker, {"x"})->Get();
  ASSERT_TRUE(acquired.ok());
  ASSERT_TRUE(reader.Hold("x"));
  Withdraw(maker, "x");
  v1::ReleaseRequest release;
  release.add_leases(acquired->message.shares(0).lease());
  release.add_unmapped(arena.arena());
  ASSERT_TRUE(door().Release(maker, release).ok());
  EXPECT_TRUE(broker_->hazards_waiting());
  reader.Clear();
  for (int i = 0; i < 300 && broker_->hazards_waiting(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(broker_->hazards_waiting());
}

TEST_F(VerbsTest, AtTheGrpcDoorADescriptorIsATicket) {
  const Caller maker = Open(Door::kGrpc);
  auto arena = StartAllocate(maker, kMiB)->Get();
  ASSERT_TRUE(arena.ok());
  EXPECT_FALSE(arena->descriptor.valid());
  v1::RedeemRequest redeem;
  redeem.set_token(arena->message.ticket().token());
  auto redeemed = door().Redeem(maker, redeem);
  ASSERT_TRUE(redeemed.ok());
  EXPECT_TRUE(redeemed->descriptor.valid());
  EXPECT_TRUE(redeemed->message.writable());
  EXPECT_EQ(door().Redeem(maker, redeem).status().code(), Code::kNotFound);
}

TEST_F(VerbsTest, WithoutRoomForItsTicketAnArenaIsNotKept) {
  config_.limits.tickets_per_session = 1;
  const Caller maker = Open(Door::kGrpc);
  ASSERT_TRUE(StartAllocate(maker, kMiB)->Get().ok());
  const auto second = StartAllocate(maker, kMiB)->Get();
  ASSERT_EQ(second.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("tickets_per_session"));
  verbs().WaitIdle(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(door().GetStats(maker, {})->message.arenas(), 1u);
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
  publish.mutable_fence()->set_kind(v1::Fence::DONE);
  v1::ArraySpec* spec = publish.mutable_specs()->add_arrays();
  spec->set_bits(8);
  spec->set_lanes(1);
  spec->set_dtype("uint8");
  spec->add_shape(300);
  spec->set_size(300);
  const v1::PublishRequest said = publish;
  const auto published = door().Publish(maker, publish);
  ASSERT_TRUE(published.ok()) << published.status().ToString();

  v1::AcquireRequest request;
  request.add_shares()->set_name("x");
  request.add_shares()->set_name("x");
  const auto acquired = door().Acquire(maker, request)->Get();
  ASSERT_TRUE(acquired.ok());
  const v1::AcquireResponse& lifeline = acquired->message;
  ASSERT_EQ(lifeline.shares_size(), 2);
  EXPECT_NE(lifeline.shares(0).lease(), lifeline.shares(1).lease());
  const v1::Share& share = lifeline.shares(1).share();
  EXPECT_EQ(share.id(), published->message.share());
  EXPECT_EQ(share.generation(), published->message.generation());
  EXPECT_EQ(share.namespace_(), "default");
  EXPECT_EQ(share.name(), "x");
  EXPECT_EQ(share.immutability(), v1::IMMUTABILITY_BY_CONTRACT);
  EXPECT_EQ(share.specs().SerializeAsString(), said.specs().SerializeAsString());
  EXPECT_EQ(share.fence().kind(), v1::Fence::DONE);
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
  EXPECT_EQ(door().List(maker, list)->message.shares(0).share().SerializeAsString(), share.SerializeAsString());
}

TEST_F(VerbsTest, WhatComesBackIsKeptForWhoHears) {
  Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  v1::WithdrawRequest withdraw;
  withdraw.add_shares()->set_name("x");
  maker.hears = false;
  EXPECT_EQ(door().Withdraw(maker, withdraw)->message.returned_size(), 0);
  EXPECT_EQ(door().Release(maker, {})->message.returned_size(), 0);
  maker.hears = true;
  EXPECT_EQ(door().Release(maker, {})->message.returned_size(), 1);
}

TEST_F(VerbsTest, AWithdrawBringsBackTheMakersRanges) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  v1::WithdrawRequest request;
  request.add_shares()->set_name("x");
  const auto answer = door().Withdraw(maker, request);
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
  EXPECT_THAT(answer.status().message(), HasSubstr("(an answer has at most 65520)"));
  EXPECT_EQ(door().GetStats(reader, {})->message.leases(), 0u);
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
    const auto page = door().List(maker, request);
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    EXPECT_LE(page->message.ByteSizeLong() + sizeof(FrameHeader), kFrameBytesMax);
    for (const auto& row : page->message.shares()) EXPECT_TRUE(seen.insert(row.share().name()).second);
    request.set_page_token(page->message.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(seen.size(), kShares);
  EXPECT_GT(pages, 1);
}

TEST_F(VerbsTest, SharesWhoseDescriptionsDoNotFitIntoAnAnswerAreNotLeased) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  std::vector<std::string> names;
  for (uint64_t i = 0; i < 8; ++i) {
    names.push_back(Concat("x", i));
    ASSERT_TRUE(Publish(maker, arena, names.back(), i * 4096, 4096, config_.limits.metadata_bytes_max).ok());
  }
  const auto refused = StartAcquire(maker, names)->Get();
  ASSERT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.status().reason(), "ANSWER_TOO_LARGE");
  EXPECT_NE(refused.status().message().find("of 8 shares"), std::string::npos) << refused.status().message();
  const auto stats = door().GetStats(maker, {});
  EXPECT_EQ(stats->message.leases(), 0u);
  EXPECT_EQ(stats->message.acquires_total(), 0u) << "nothing was leased and taken back";
}

TEST_F(VerbsTest, EveryKindOfListAnswers) {
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  ASSERT_TRUE(Publish(maker, arena, "x").ok());
  ASSERT_TRUE(StartAcquire(maker, {"x"})->Get().ok());
  const auto list = [&](v1::ListRequest::Kind kind) {
    v1::ListRequest request;
    request.set_kind(kind);
    auto answer = door().List(maker, request);
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
  EXPECT_TRUE(verbs().lists.GetServerInfo().draining());
  EXPECT_TRUE(door().Release(caller, {}).ok());
}

TEST_F(VerbsTest, AnotherUsersTokenJoinsNothing) {
  v1::OpenSessionRequest hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  Peer peer;
  peer.uid = 1000;
  const auto opened = verbs().sessions.OpenSession(As<wire::OpenSessionRequest>(hello), peer);
  ASSERT_TRUE(opened.ok());
  hello.set_join(opened->token());
  EXPECT_TRUE(verbs().sessions.Join(As<wire::OpenSessionRequest>(hello), peer).ok());
  peer.uid = 1001;
  const auto foreign = verbs().sessions.Join(As<wire::OpenSessionRequest>(hello), peer);
  hello.set_join(std::string(16, 'x'));
  const auto forged = verbs().sessions.Join(As<wire::OpenSessionRequest>(hello), peer);
  EXPECT_EQ(foreign.status().code(), Code::kNotFound);
  EXPECT_EQ(foreign.status().message(), forged.status().message()) << "the messages reveal which token exists";
}

}  // namespace
}  // namespace arraybridge::daemon
