// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using SessionTest = BrokerTest;

TEST_F(SessionTest, IsFoundByItsTokenAndNothingElse) {
  const auto opened = broker().OpenSession({.uid = 7});
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(*broker().SessionOf(opened->token), opened->session);
  EXPECT_EQ(*broker().UidOf(opened->session), 7u);
  EXPECT_EQ(broker().SessionOf(Token{}).status().code(), Code::kNotFound);
  EXPECT_EQ(broker().SessionOf({}).status().code(), Code::kNotFound);
  EXPECT_EQ(broker().SessionOf(std::span(opened->token.data(), 8)).status().code(), Code::kNotFound);
}

TEST_F(SessionTest, IsGoneAfterItsEndForEveryVerb) {
  const auto opened = broker().OpenSession({.uid = 7});
  const auto session = opened->session;
  const auto arena = Arena(session);
  broker().EndSession(session);
  broker().EndSession(session);
  const auto ended = FailsWith(Code::kNotFound, "SESSION_ENDED");
  EXPECT_THAT(broker().SessionOf(opened->token), ended);
  EXPECT_THAT(broker().UidOf(session), ended);
  EXPECT_THAT(broker().Allocate(session, {"", kHost, 1}), ended);
  EXPECT_THAT(broker().CheckAllocate(session, {"", kHost, 1}), ended);
  EXPECT_THAT(broker().Mapped(session, ArenaId{arena.arena}), ended);
  EXPECT_THAT(broker().Publish(session, Call(arena, "a")), ended);
  EXPECT_THAT(Acquire(session, {{.name = "a"}}), ended);
  EXPECT_THAT(broker().Export(session, ArenaId{arena.arena}, arena.generation), ended);
  EXPECT_THAT(broker().Release(session, {}, {}, {}), ended);
  EXPECT_THAT(Withdraw(session, {{.name = "a"}}), ended);
  EXPECT_THAT(broker().IssueTicket(session, ArenaId{arena.arena}, Access::kRead), ended);
  EXPECT_THAT(broker().Redeem(session, Token{}), ended);
  EXPECT_THAT(broker().ListShares(session, {.page_size = 1}), ended);
  EXPECT_THAT(broker().ListSessions(session, {.page_size = 1}), ended);
  EXPECT_THAT(broker().ListLeases(session, {.page_size = 1}), ended);
  EXPECT_THAT(broker().ListNamespaces(session, {.page_size = 1}), ended);
  EXPECT_TRUE(broker().TakeReturned(session, 9).empty());
}

TEST_F(SessionTest, HasALimitInAll) {
  config_.limits.sessions = 2;
  Open(1);
  const auto second = Open(2);
  EXPECT_THAT(broker().OpenSession({.uid = 3}), FailsWith(Code::kResourceExhausted, "TOO_MANY_SESSIONS"));
  broker().EndSession(second);
  EXPECT_TRUE(broker().OpenSession({.uid = 3}).ok());
}

TEST_F(SessionTest, HasALimitPerUid) {
  config_.limits.sessions_per_uid = 2;
  const auto first = Open(1);
  Open(1);
  const auto refused = broker().OpenSession({.uid = 1});
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "TOO_MANY_SESSIONS"));
  EXPECT_EQ(refused.status().message(), "limit sessions_per_uid (2) is reached");
  EXPECT_TRUE(broker().OpenSession({.uid = 2}).ok());
  broker().EndSession(first);
  EXPECT_TRUE(broker().OpenSession({.uid = 1}).ok());
}

TEST_F(SessionTest, EveryLifeOfTheBrokerHasItsOwnId) {
  const Broker other(config_, {&backend_});
  EXPECT_NE(broker().broker_id(), other.broker_id());
}

TEST_F(SessionTest, DevicesSayWhatTheBackendSays) {
  Arena(Open(), 3 * kPage);
  const auto devices = broker().Devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].device, kHost);
  EXPECT_EQ(devices[0].capacity_bytes, kCapacity);
  EXPECT_EQ(devices[0].allocated_bytes, 3 * kPage);
}

}  // namespace
}  // namespace arraybridge::daemon
