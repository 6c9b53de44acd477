// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/lifeline/local_door.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>

#include "tests/unit/service/asked.h"
#include "tests/unit/service/local_door_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

// A TCP socket whose close() sleeps until its peer, which never reads, has received all data.
class LingeringSocket {
 public:
  LingeringSocket() : end_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(server.get(), plain, size), 0);
    EXPECT_EQ(::listen(server.get(), 1), 0);
    EXPECT_EQ(::getsockname(server.get(), plain, &size), 0);
    ::connect(end_.get(), plain, size);
    far_end_.reset(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string much(65536, 'x');
    while (::send(end_.get(), much.data(), much.size(), MSG_NOSIGNAL) > 0) continue;
    ::fcntl(end_.get(), F_SETFL, 0);
    const linger forever{1, 65535};
    EXPECT_EQ(::setsockopt(end_.get(), SOL_SOCKET, SO_LINGER, &forever, sizeof forever), 0);
  }

  // REQUIRES: another copy exists until this returns; the last close would sleep.
  void GiveUp() { end_.reset(); }
  int fd() const { return end_.get(); }

 private:
  UniqueFd end_;
  UniqueFd far_end_;  // closing it wakes the sleeper
};

TEST_F(LocalDoorTest, ADescriptorThatSleepsWhenItIsClosedHoldsNobodyUp) {
  LingeringSocket read, unread;
  LifelineClient witness = Greeted();
  // The door reads each connection only after this process has given up its own copy.
  auto [first, greeting] = LifelineClient::Pair();
  ASSERT_EQ(first.Send(Verb::kOpenSession, LifelineClient::HelloMessage().SerializeAsString()), SendOutcome::kSent);
  ASSERT_EQ(first.Send(Verb::kGetStats, "", 1, 0, read.fd()), SendOutcome::kSent);
  read.GiveUp();
  door_->Adopt(std::move(greeting));
  EXPECT_EQ(first.Receive().code(), Code::kOk);
  EXPECT_EQ(first.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(first.Receive().closed);

  auto [second, connection] = LifelineClient::Pair();
  // the door cuts the client for this frame and never reads the next one
  ASSERT_EQ(second.Send(Verb::kGetStats, ""), SendOutcome::kSent);
  ASSERT_EQ(second.Send(Verb::kGetStats, "", 2, 0, unread.fd()), SendOutcome::kSent);
  unread.GiveUp();
  door_->Adopt(std::move(connection));
  auto told = second.Receive();
  if (told.closed) told = second.Receive();  // the unread frame resets the connection, which is reported first
  EXPECT_EQ(told.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(second.Receive().closed);
  EXPECT_EQ(witness.Call(Verb::kGetStats, v1::GetStatsRequest()).code(), Code::kOk);
}

TEST_F(LocalDoorTest, AHelloOpensASessionWhoseEndIsTheSockets) {
  LifelineClient witness = Greeted();
  LifelineClient client = Connect();
  const auto opened = client.Hello();
  ASSERT_EQ(opened.code(), Code::kOk);
  EXPECT_EQ(opened.As<v1::OpenSessionResponse>().token().size(), 16u);
  EXPECT_EQ(Stats(witness).sessions(), 2u);
  client.Close();
  AwaitSessions(witness, 1);
}

TEST_F(LocalDoorTest, WhatWaitsIsInFlightUntilItIsAnsweredOrItsClientIsGone) {
  LifelineClient witness = Greeted();
  const auto in_flight = [this] {
    for (const Traffic::Row& row : verbs().counts().traffic.Rows()) {
      if (row.verb == "Acquire") return row.in_flight;
    }
    return uint64_t{0};
  };
  v1::AcquireRequest waits;
  waits.add_shares()->set_name("not there yet");
  waits.set_timeout_ms(60'000);
  v1::AcquireRequest gives_up = waits;
  gives_up.set_timeout_ms(1);
  v1::AcquireRequest asks = waits;
  asks.set_timeout_ms(0);

  LifelineClient client = Greeted();
  EXPECT_EQ(client.Call(Verb::kAcquire, asks).code(), Code::kNotFound);
  EXPECT_EQ(in_flight(), 0u);
  ASSERT_EQ(client.Send(Verb::kAcquire, waits.SerializeAsString(), 7), SendOutcome::kSent);
  ASSERT_EQ(client.Send(Verb::kAcquire, waits.SerializeAsString(), 8), SendOutcome::kSent);
  while (Stats(witness).waiting() != 2) ::usleep(100);
  EXPECT_EQ(in_flight(), 2u);
  EXPECT_EQ(client.Call(Verb::kAcquire, gives_up, 9).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(in_flight(), 2u);
  client.Close();
  AwaitSessions(witness, 1);
  EXPECT_EQ(Stats(witness).waiting(), 0u);
  EXPECT_EQ(in_flight(), 0u);
}

TEST_F(LocalDoorTest, DescriptorsThatWentOutAreCounted) {
  LifelineClient client = Greeted();
  const Traffic& traffic = verbs().counts().traffic;
  v1::AllocateRequest allocate;
  allocate.mutable_device()->set_type(kDeviceCpu);
  allocate.set_size(4096);
  ASSERT_TRUE(client.Call(Verb::kAllocate, allocate).descriptor.valid());
  while (traffic.passed(FdKind::kMemfd) != 1) ::usleep(100);  // counted after it was sent
  EXPECT_EQ(traffic.passed(FdKind::kPages), 0u);
  v1::BrowseRequest browse;
  ASSERT_TRUE(client.Call(Verb::kBrowse, browse).descriptor.valid());
  client.Call(Verb::kGetStats, v1::GetStatsRequest());  // the same thread answers this after the earlier request
  EXPECT_EQ(traffic.passed(FdKind::kPages), 1u);
  EXPECT_EQ(traffic.passed(FdKind::kMemfd) + traffic.passed(FdKind::kPages), 2u);
  EXPECT_EQ(traffic.passed(FdKind::kCudaVmm), 0u);
}

TEST_F(LocalDoorTest, AnswersRepeatVerbAndRequest) {
  LifelineClient client = Greeted();
  const auto got = client.Call(Verb::kGetStats, v1::GetStatsRequest(), 0xfedcba9876543210);
  EXPECT_EQ(got.header.verb, static_cast<uint16_t>(Verb::kGetStats));
  EXPECT_EQ(got.header.request, 0xfedcba9876543210u);
}

TEST_F(LocalDoorTest, TheDeathOfTheProcessEndsTheSessionThoughTheSocketLivesOn) {
  LifelineClient witness = Greeted();
  Mortal process;
  LifelineClient inherited = Connect(1000, process.descriptor());
  ASSERT_EQ(inherited.Hello().code(), Code::kOk);
  AwaitSessions(witness, 2);
  process.Die();
  AwaitSessions(witness, 1);
  EXPECT_TRUE(inherited.Receive().closed);
}

TEST_F(LocalDoorTest, TheFirstFrameMustBeAHello) {
  LifelineClient client = Connect();
  const auto got = client.Call(Verb::kGetStats, v1::GetStatsRequest());
  EXPECT_EQ(got.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(client.Receive().closed);
}

TEST_F(LocalDoorTest, WhoSaysNothingIsCutAtTheDeadline) {
  config_.limits.hello_timeout = std::chrono::milliseconds(10);
  LifelineClient client = Connect();
  const auto got = client.Receive();
  EXPECT_EQ(got.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(got.error().message(), HasSubstr("hello_timeout"));
  EXPECT_TRUE(client.Receive().closed);
}

TEST_F(LocalDoorTest, WhoSaidHelloIsNotCutAtTheDeadline) {
  config_.limits.hello_timeout = std::chrono::seconds(1);
  LifelineClient client = Greeted();
  LifelineClient silent = Connect();
  EXPECT_EQ(silent.Receive().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(client.Call(Verb::kGetStats, v1::GetStatsRequest()).code(), Code::kOk);
}

TEST_F(LocalDoorTest, GarbageIsAnsweredAndCutAndHurtsNobodyElse) {
  LifelineClient other = Greeted();
  LifelineClient client = Greeted();
  client.Send(Verb::kAcquire, "\xff\xff\xff\xff");
  EXPECT_EQ(client.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(client.Receive().closed);
  AwaitSessions(other, 1);
  EXPECT_EQ(Stats(other).sessions_cut_total(), 1u);
}

TEST_F(LocalDoorTest, FramesThatAreNoneAreCut) {
  LifelineClient shorter = Greeted();
  ASSERT_EQ(::send(shorter.fd(), "noise", 5, 0), 5);
  EXPECT_EQ(shorter.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(shorter.Receive().closed);
  LifelineClient longer = Greeted();
  const std::string huge(kFrameBytesMax + 1, 'x');
  ASSERT_EQ(::send(longer.fd(), huge.data(), huge.size(), 0), static_cast<ssize_t>(huge.size()));
  EXPECT_EQ(longer.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(longer.Receive().closed);
}

TEST_F(LocalDoorTest, AFrameAboveTheConfiguredLimitIsCut) {
  config_.limits.frame_bytes_max = 4096;
  LifelineClient client = Greeted();
  client.Send(Verb::kAcquire, std::string(4096, 'x'));
  EXPECT_THAT(client.Receive().error().message(), HasSubstr("the most is 4096"));
  EXPECT_TRUE(client.Receive().closed);
}

TEST_F(LocalDoorTest, ADescriptorIsClosedAndItsSenderCut) {
  LifelineClient client = Greeted();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  client.Send(Verb::kGetStats, "", 1, 0, ends[1]);
  ::close(ends[1]);
  EXPECT_EQ(client.Receive().code(), Code::kInvalidArgument);
  EXPECT_TRUE(client.Receive().closed);
  char byte;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "the writing end is still open";
}

TEST_F(LocalDoorTest, AnUnknownVerbIsAnsweredAndNobodyIsCut) {
  LifelineClient client = Greeted();
  client.Send(Verb{999}, "");
  EXPECT_EQ(client.Receive().code(), Code::kUnimplemented);
  EXPECT_EQ(client.Call(Verb::kGetStats, v1::GetStatsRequest()).code(), Code::kOk);
}

TEST_F(LocalDoorTest, ASecondHelloIsRefused) {
  LifelineClient client = Greeted();
  EXPECT_EQ(client.Hello().code(), Code::kFailedPrecondition);
  EXPECT_EQ(client.Call(Verb::kGetStats, v1::GetStatsRequest()).code(), Code::kOk);
}

TEST_F(LocalDoorTest, NoReplyMeansNoneNotEvenAnError) {
  LifelineClient client = Greeted();
  v1::WithdrawRequest absent;
  absent.add_shares()->set_name("absent");
  client.Send(Verb::kWithdraw, absent.SerializeAsString(), 1, kFrameNoReply);
  client.Send(Verb::kRelease, "", 2, kFrameNoReply);
  EXPECT_EQ(client.Call(Verb::kGetStats, v1::GetStatsRequest(), 3).header.request, 3u);
}

TEST_F(LocalDoorTest, WhatIsOverdueIsNotBegun) {
  LifelineClient client = Greeted();
  v1::WithdrawRequest absent;
  absent.add_shares()->set_name("absent");
  const auto withdraw = [&](int64_t from_now_ms, uint16_t flags) {
    const uint32_t deadline = DeadlineOnWire(InMilliseconds(Clock::now()) + from_now_ms);
    const FrameHeader header{static_cast<uint16_t>(Verb::kWithdraw), flags, deadline, 1};
    EXPECT_EQ(SendFrame(client.fd(), header, absent.SerializeAsString(), -1, true), SendOutcome::kSent);
    return client.Receive();
  };
  const auto overdue = withdraw(-1, kFrameDeadline);
  EXPECT_EQ(overdue.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(overdue.error().reason(), "NOT_SERVED");
  EXPECT_THAT(overdue.error().message(), HasSubstr("Withdraw"));
  EXPECT_EQ(withdraw(3600'000, kFrameDeadline).code(), Code::kNotFound);
  EXPECT_EQ(withdraw(-1, 0).code(), Code::kNotFound) << "without the flag the request has no deadline";
}

TEST_F(LocalDoorTest, TheClockOfDeadlinesIsTold) {
  LifelineClient client = Greeted();
  const int64_t before = InMilliseconds(Clock::now());
  const auto told = client.Call(Verb::kGetServerInfo, v1::GetServerInfoRequest()).As<v1::GetServerInfoResponse>();
  EXPECT_GE(told.clock_ms(), static_cast<uint64_t>(before));
  EXPECT_LE(told.clock_ms(), static_cast<uint64_t>(InMilliseconds(Clock::now())));
}

TEST_F(LocalDoorTest, ConnectionsOfOneUserAreBounded) {
  config_.limits.sessions_per_uid = 2;
  LifelineClient first = Greeted(7);
  LifelineClient second = Greeted(7);
  const LifelineClient third = Connect(7);
  const LifelineClient fourth = Connect(7);
  LifelineClient fifth = Connect(7);
  EXPECT_THAT(fifth.Receive().error().message(), HasSubstr("has 4 connections, twice limits.sessions_per_uid (2)"));
  EXPECT_TRUE(fifth.Receive().closed);
  LifelineClient other_user = Greeted(8);
  second.Close();
  AwaitSessions(first, 2);
  Greeted(7);
}

TEST_F(LocalDoorTest, AJoinedLifelineOnlyRedeems) {
  v1::OpenSessionRequest hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  Peer peer;
  peer.uid = 1000;
  peer.door = Door::kGrpc;
  const auto opened = verbs().sessions.OpenSession(As<wire::OpenSessionRequest>(hello), peer);
  ASSERT_TRUE(opened.ok());
  hello.set_join(opened->token());

  LifelineClient stranger = Connect(1001);
  EXPECT_EQ(stranger.Call(Verb::kOpenSession, hello).code(), Code::kNotFound);
  LifelineClient joined = Connect(1000);
  ASSERT_EQ(joined.Call(Verb::kOpenSession, hello).code(), Code::kOk);
  v1::AllocateRequest allocate;
  allocate.set_size(4096);
  EXPECT_EQ(joined.Call(Verb::kAllocate, allocate).code(), Code::kPermissionDenied);
  v1::RedeemRequest redeem;
  redeem.set_token(std::string(16, 't'));
  EXPECT_EQ(joined.Call(Verb::kRedeem, redeem).code(), Code::kNotFound);

  const SessionId session{opened->session()};
  const auto allocated = TestDoor(verbs()).Allocate({session, Door::kGrpc}, allocate)->Get();
  ASSERT_TRUE(allocated.ok());
  EXPECT_FALSE(allocated->descriptor.valid());
  redeem.set_token(allocated->message.ticket().token());
  const auto redeemed = joined.Call(Verb::kRedeem, redeem);
  ASSERT_EQ(redeemed.code(), Code::kOk);
  EXPECT_TRUE(redeemed.descriptor.valid());
  EXPECT_TRUE(redeemed.As<v1::RedeemResponse>().writable());
  EXPECT_EQ(joined.Call(Verb::kRedeem, redeem).code(), Code::kNotFound) << "a ticket is used once";

  LifelineClient witness = Greeted();
  joined.Close();
  LifelineClient after = Greeted();
  EXPECT_EQ(Stats(witness).sessions(), 3u) << "the stream's session must live on";
}

TEST_F(LocalDoorTest, AnswersSayThatMemoryIsWanted) {
  LifelineClient hungry = Greeted();
  LifelineClient other = Greeted();
  v1::AllocateRequest allocate;
  allocate.set_size(64ull << 20);
  ASSERT_EQ(hungry.Call(Verb::kAllocate, allocate).code(), Code::kOk);
  allocate.set_timeout_ms(60'000);
  hungry.Send(Verb::kAllocate, allocate.SerializeAsString());
  while ((other.Call(Verb::kGetStats, v1::GetStatsRequest()).header.flags & kFrameMemoryWanted) == 0) ::usleep(100);
  EXPECT_EQ(Stats(other).waiting(), 1u);
  hungry.Close();
  AwaitSessions(other, 1);
  EXPECT_EQ(other.Call(Verb::kGetStats, v1::GetStatsRequest()).header.flags & kFrameMemoryWanted, 0);
}

}  // namespace
}  // namespace arraybridge::daemon
