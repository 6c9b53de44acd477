// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <vector>

#include "tests/unit/service/channel_fixture.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::milliseconds;

TEST_F(VerbsChannelTest, WhoWaitsForAShareIsServedInTurn) {
  const Caller maker = Open();
  const Caller one = Open();
  const Caller two = Open(Door::kGrpc);
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER);
  auto first = Receive(one, End(one, v1::OpenChannelRequest::RECEIVER), kLong);
  const uint64_t receives_two = End(two, v1::OpenChannelRequest::RECEIVER);
  auto second = Receive(two, receives_two, kLong);
  EXPECT_FALSE(IsAnswered(first));
  EXPECT_EQ(verbs().lists.Stats().waiting(), 2u);
  EXPECT_TRUE(Send(maker, sends, arena, 0)->Get().ok());
  EXPECT_TRUE(IsAnswered(first));
  EXPECT_FALSE(IsAnswered(second));
  EXPECT_EQ(Receive(two, receives_two)->Get().status().reason(), "CHANNEL_EMPTY");  // it does not wait
  EXPECT_TRUE(Send(maker, sends, arena, 1)->Get().ok());
  const auto got = first->Get();
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->descriptor.valid());
  const auto ticket = second->Get();
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(ticket->message.shares(0).share().handle().offset(), 4096u);
  EXPECT_EQ(ticket->message.tickets_size(), 1);
  EXPECT_EQ(verbs().lists.Stats().waiting(), 0u);
}

TEST_F(VerbsChannelTest, WhoWaitsForRoomIsServedInTurn) {
  const Caller maker = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER, 1);
  const uint64_t receives = End(maker, v1::OpenChannelRequest::RECEIVER);
  EXPECT_TRUE(Send(maker, sends, arena, 0)->Get().ok());
  const auto full = Send(maker, sends, arena, 1)->Get();
  EXPECT_EQ(full.status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(full.status().reason(), "CHANNEL_FULL");
  auto second = Send(maker, sends, arena, 1, kLong);
  auto third = Send(maker, sends, arena, 2, kLong);
  EXPECT_FALSE(IsAnswered(second));
  // The request would overtake the waiting ones.
  EXPECT_EQ(Send(maker, sends, arena, 3)->Get().status().reason(), "CHANNEL_FULL");
  EXPECT_EQ(PageOf(Receive(maker, receives)), 0u);
  EXPECT_TRUE(second->Get().ok());
  EXPECT_FALSE(IsAnswered(third));
  EXPECT_EQ(PageOf(Receive(maker, receives)), 1u);
  EXPECT_TRUE(third->Get().ok());
  EXPECT_EQ(PageOf(Receive(maker, receives)), 2u);
}

TEST_F(VerbsChannelTest, ManyWhoWaitOnBothSidesAreAllServed) {
  const Caller maker = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER, 1);
  std::vector<Sent> sent;
  for (uint64_t page = 0; page < 40; ++page) sent.push_back(Send(maker, sends, arena, page, kLong));
  const Caller reader = Open();
  const uint64_t receives = End(reader, v1::OpenChannelRequest::RECEIVER);
  for (uint64_t page = 0; page < 40; ++page) EXPECT_EQ(PageOf(Receive(reader, receives, kLong)), page);
  for (auto& one : sent) EXPECT_TRUE(one->Get().ok());
}

TEST_F(VerbsChannelTest, WaitsEndAtTheirDeadlines) {
  const Caller maker = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER, 1);
  const uint64_t receives = End(maker, v1::OpenChannelRequest::RECEIVER);
  const auto empty = Receive(maker, receives, 5)->Get();
  EXPECT_EQ(empty.status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(empty.status().reason(), "CHANNEL_EMPTY");
  EXPECT_TRUE(Send(maker, sends, arena, 0, 5)->Get().ok());
  const auto full = Send(maker, sends, arena, 1, 5)->Get();
  EXPECT_EQ(full.status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(full.status().reason(), "CHANNEL_FULL");
}

TEST_F(VerbsChannelTest, EndsAnswerWhoWaits) {
  const Caller maker = Open();
  const Caller reader = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER, 1);
  const uint64_t receives = End(reader, v1::OpenChannelRequest::RECEIVER);
  auto waits = Receive(reader, receives, kLong);
  Close(maker, sends);
  EXPECT_EQ(waits->Get().status().reason(), "CHANNEL_ENDED");
  waits = Receive(reader, receives);
  EXPECT_EQ(waits->Get().status().reason(), "CHANNEL_ENDED");

  const uint64_t sends_again = End(maker, v1::OpenChannelRequest::SENDER);
  EXPECT_TRUE(Send(maker, sends_again, arena, 0)->Get().ok());
  auto blocked = Send(maker, sends_again, arena, 1, kLong);
  verbs().sessions.EndSession(reader.session);
  EXPECT_EQ(blocked->Get().status().reason(), "RECEIVER_DIED");

  const uint64_t own = End(maker, v1::OpenChannelRequest::RECEIVER);
  EXPECT_TRUE(Receive(maker, own)->Get().ok()) << "what the reader left";
  auto last = Receive(maker, own, kLong);
  Close(maker, own);
  EXPECT_EQ(last->Get().status().reason(), "CHANNEL_NOT_OPEN");
}

TEST_F(VerbsChannelTest, ADeadSenderIsToldToWhoWaits) {
  const Caller maker = Open();
  const Caller reader = Open();
  End(maker, v1::OpenChannelRequest::SENDER);
  auto waits = Receive(reader, End(reader, v1::OpenChannelRequest::RECEIVER), kLong);
  verbs().sessions.EndSession(maker.session);
  const auto told = waits->Get();
  EXPECT_EQ(told.status().code(), Code::kAborted);
  EXPECT_EQ(told.status().reason(), "SENDER_DIED");
}

TEST_F(VerbsChannelTest, ADrainAnswersWhoWaitsAndRefusesNewWork) {
  const Caller maker = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER);
  const uint64_t receives = End(maker, v1::OpenChannelRequest::RECEIVER);
  auto waits = Receive(maker, receives, kLong);
  verbs().Drain();
  EXPECT_EQ(waits->Get().status().reason(), "DRAINING");
  EXPECT_EQ(Receive(maker, receives, kLong)->Get().status().reason(), "DRAINING");
  EXPECT_EQ(Send(maker, sends, arena, 0)->Get().status().reason(), "DRAINING");
  v1::OpenChannelRequest request;
  request.set_name("other");
  request.set_role(v1::OpenChannelRequest::SENDER);
  EXPECT_EQ(door().OpenChannel(maker, request).status().reason(), "DRAINING");
  Close(maker, sends);
}

TEST_F(VerbsChannelTest, WhatNobodyHearsGoesToTheNext) {
  const Caller maker = Open();
  const Caller reader = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER);
  const uint64_t receives = End(reader, v1::OpenChannelRequest::RECEIVER);
  for (const uint64_t page : {0, 1}) ASSERT_TRUE(Send(maker, sends, arena, page)->Get().ok());
  const auto granted = Receive(reader, receives)->Get();
  ASSERT_TRUE(granted.ok());
  verbs().TakeBack(reader, Verb::kReceive, granted->message.SerializeAsString());
  EXPECT_EQ(PageOf(Receive(reader, receives)), 0u);
  EXPECT_EQ(PageOf(Receive(reader, receives)), 1u);
}

TEST_F(VerbsChannelTest, WhatCannotBeSentIsRefused) {
  const Caller maker = Open();
  const auto arena = Arena(maker, kMiB);
  const uint64_t sends = End(maker, v1::OpenChannelRequest::SENDER);
  const auto refusal = [&](auto change) {
    v1::PublishRequest request = PublishOf(arena, "", false);
    request.set_channel(sends);
    change(request);
    return door().Send(maker, request)->Get().status().code();
  };
  EXPECT_EQ(refusal([](auto& request) { request.set_name("a"); }), Code::kInvalidArgument);
  EXPECT_EQ(refusal([](auto& request) { request.set_replace(true); }), Code::kInvalidArgument);
  EXPECT_EQ(refusal([](auto& request) { request.set_sealed(true); }), Code::kInvalidArgument);
  EXPECT_EQ(refusal([](auto& request) { request.set_channel(99); }), Code::kNotFound);
  EXPECT_EQ(refusal([](auto& request) { request.set_size(1 << 30); }), Code::kInvalidArgument);
  v1::OpenChannelRequest request;
  request.set_name("frames");
  EXPECT_EQ(door().OpenChannel(maker, request).status().code(), Code::kInvalidArgument);  // no role
  request.set_role(v1::OpenChannelRequest::SENDER);
  request.set_name(std::string(300, 'n'));
  EXPECT_EQ(door().OpenChannel(maker, request).status().code(), Code::kInvalidArgument);
  // An answer that its caller does not want cannot grant a share.
  Caller deaf = maker;
  deaf.hears = false;
  EXPECT_EQ(Receive(deaf, End(maker, v1::OpenChannelRequest::RECEIVER))->Get().status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace arraybridge::daemon
