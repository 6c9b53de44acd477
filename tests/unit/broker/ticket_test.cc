// SPDX-License-Identifier: Apache-2.0
// A ticket can be redeemed once, before its deadline, by its own session, while the session may still read the arena.
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using TicketTest = BrokerTest;

TEST_F(TicketTest, RedeemsOnce) {
  const auto session = Open();
  const auto arena = Unsealed(session);
  const auto ticket = broker().IssueTicket(session, ArenaId{arena.arena}, Access::kWrite);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(Now().tickets, 1u);
  const auto redeemed = broker().Redeem(session, *ticket);
  ASSERT_TRUE(redeemed.ok());
  EXPECT_TRUE(redeemed->writable);
  EXPECT_TRUE(redeemed->handle.descriptor.valid());
  EXPECT_EQ(redeemed->handle.arena, arena.arena);
  EXPECT_EQ(redeemed->handle.arena_size, kPage);
  EXPECT_THAT(broker().Redeem(session, *ticket), FailsWith(Code::kNotFound, "TICKET_NOT_FOUND"));
  EXPECT_EQ(Now().tickets, 0u);
}

TEST_F(TicketTest, AnothersUsedLateAndInventedOnesAreTheSame) {
  const auto session = Open();
  const auto other = Open();
  const auto arena = Arena(session);
  const auto ticket = broker().IssueTicket(session, ArenaId{arena.arena}, Access::kRead);
  const auto foreign = broker().Redeem(other, *ticket);
  const auto invented = broker().Redeem(session, Token{});
  const auto too_short = broker().Redeem(session, std::span(ticket->data(), 15));
  EXPECT_THAT(foreign, FailsWith(Code::kNotFound, "TICKET_NOT_FOUND"));
  EXPECT_EQ(foreign.status().message(), invented.status().message());
  EXPECT_EQ(foreign.status().message(), too_short.status().message());
  EXPECT_TRUE(broker().Redeem(session, *ticket).ok());  // the failed attempts did not use it up
}

TEST_F(TicketTest, IsLateAtItsDeadline) {
  config_.limits.ticket_lifetime = std::chrono::milliseconds(0);
  const auto session = Open();
  const auto arena = Arena(session);
  const auto ticket = broker().IssueTicket(session, ArenaId{arena.arena}, Access::kRead);
  ASSERT_TRUE(ticket.ok());
  EXPECT_THAT(broker().Redeem(session, *ticket), FailsWith(Code::kNotFound, "TICKET_NOT_FOUND"));
}

TEST_F(TicketTest, WhatBecomesOfThemIsCounted) {
  const auto session = Open();
  const auto arena = Arena(session);
  const auto issue = [&] { return broker().IssueTicket(session, ArenaId{arena.arena}, Access::kRead); };
  const auto outcomes = [this] {
    const Snapshot now = Now();
    return std::vector<uint64_t>{now.tickets_redeemed_total, now.tickets_expired_total, now.tickets_refused_total};
  };
  const auto ticket = issue();
  ASSERT_TRUE(broker().Redeem(session, *ticket).ok());
  EXPECT_THAT(outcomes(), testing::ElementsAre(1, 0, 0));
  ASSERT_FALSE(broker().Redeem(session, *ticket).ok());
  EXPECT_THAT(outcomes(), testing::ElementsAre(1, 0, 1));
  ASSERT_TRUE(issue().ok());
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_THAT(outcomes(), testing::ElementsAre(1, 1, 1));
  ASSERT_TRUE(issue().ok());
  broker().EndSession(session);  // no session can redeem it any more
  EXPECT_THAT(outcomes(), testing::ElementsAre(1, 2, 1));
}

TEST_F(TicketTest, SweepDropsLateOnesAndTheEndOfTheSessionAll) {
  const auto session = Open();
  const auto arena = Arena(session);
  ASSERT_TRUE(broker().IssueTicket(session, ArenaId{arena.arena}, Access::kRead).ok());
  Sweep();
  EXPECT_EQ(Now().tickets, 1u);
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().tickets, 0u);
  ASSERT_TRUE(broker().IssueTicket(session, ArenaId{arena.arena}, Access::kRead).ok());
  broker().EndSession(session);
  EXPECT_EQ(Now().tickets, 0u);
}

TEST_F(TicketTest, HasALimitPerSession) {
  config_.limits.tickets_per_session = 2;
  const auto session = Open();
  const auto arena = Arena(session);
  const ArenaId id{arena.arena};
  ASSERT_TRUE(broker().IssueTicket(session, id, Access::kRead).ok());
  const auto second = broker().IssueTicket(session, id, Access::kRead);
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(broker().IssueTicket(session, id, Access::kRead),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_TICKETS"));
  ASSERT_TRUE(broker().Redeem(session, *second).ok());
  EXPECT_TRUE(broker().IssueTicket(session, id, Access::kRead).ok());
}

TEST_F(TicketTest, IsOnlyForWhatTheSessionMayHave) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  const ArenaId id{arena.arena};
  EXPECT_THAT(broker().IssueTicket(reader, id, Access::kRead), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  EXPECT_THAT(broker().IssueTicket(reader, id, Access::kWrite), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  Publish(maker, arena, "a");
  const auto lease = Lease(reader, "a");
  EXPECT_THAT(broker().IssueTicket(reader, id, Access::kWrite), FailsWith(Code::kNotFound, "ARENA_NOT_FOUND"));
  const auto ticket = broker().IssueTicket(reader, id, Access::kRead);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(Release(reader, lease), 1u);
  EXPECT_THAT(broker().Redeem(reader, *ticket), FailsWith(Code::kNotFound, "TICKET_NOT_FOUND"));
}

TEST_F(TicketTest, AWritableOneIsWorthNothingAfterTheSeal) {
  const auto session = Open();
  const auto arena = Unsealed(session);
  const auto ticket = broker().IssueTicket(session, ArenaId{arena.arena}, Access::kWrite);
  ASSERT_TRUE(broker().Mapped(session, ArenaId{arena.arena}).ok());
  EXPECT_EQ(broker().Redeem(session, *ticket).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace arraybridge::daemon
