// SPDX-License-Identifier: Apache-2.0
// Lifetimes of names: until their expiry, or the end of their maker.
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

class LifetimeTest : public BrokerTest {
 protected:
  PublishedShare PutFor(SessionId session, std::string_view name, std::chrono::milliseconds lifetime,
                        std::string_view ns = "default") {
    auto call = Call(Arena(session, kPage, ns), name, 0, 256, ns);
    call.lifetime = lifetime;
    call.replace = true;
    const auto share = broker().Publish(session, std::move(call));
    EXPECT_TRUE(share.ok()) << share.status().ToString();
    return *share;
  }
  bool IsThere(std::string_view name, std::string_view ns = "default") {
    const auto acquired = Acquire(Open(), {{.name = name}}, ns);
    return acquired.ok();
  }
};

TEST_F(LifetimeTest, AShareLosesItsNameWhenItsLifetimeIsOver) {
  config_.share_lifetime = seconds(10);
  const auto begun = Clock::now();
  const SessionId maker = Open();
  const auto share = PutFor(maker, "a", seconds(0));
  ASSERT_TRUE(share.sweep_at.has_value());
  EXPECT_GE(*share.sweep_at, begun + seconds(10));
  EXPECT_EQ(Sweep(begun + seconds(9)).next, share.sweep_at);
  const SessionId reader = Open();
  const LeaseId lease = Lease(reader, "a");
  const auto listed = broker().ListShares(maker, {.page_size = 1});
  ASSERT_TRUE(listed->rows.at(0).expires_in.has_value());
  EXPECT_LE(*listed->rows.at(0).expires_in, seconds(10));
  EXPECT_EQ(Sweep(*share.sweep_at).next, std::nullopt);
  EXPECT_FALSE(IsThere("a"));
  EXPECT_EQ(Now().withdrawn_shares, 1u);  // its reader keeps the share
  Release(reader, lease);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(LifetimeTest, AMakerMayAskForLessAndNotForMore) {
  config_.namespaces["short"].share_lifetime = seconds(10);
  const auto begun = Clock::now();
  const SessionId maker = Open();
  PutFor(maker, "less", seconds(5), "short");
  PutFor(maker, "more", hours(5), "short");
  PutFor(maker, "long", hours(5));
  const auto for_ever = PutFor(maker, "for ever", seconds(0));
  EXPECT_FALSE(for_ever.sweep_at.has_value());
  Sweep(begun + seconds(6));
  EXPECT_FALSE(IsThere("less", "short"));
  EXPECT_TRUE(IsThere("more", "short"));
  Sweep(Clock::now() + seconds(10));
  EXPECT_FALSE(IsThere("more", "short"));
  EXPECT_TRUE(IsThere("long"));
  Sweep(Clock::now() + hours(5));
  EXPECT_FALSE(IsThere("long"));
  EXPECT_TRUE(IsThere("for ever"));
}

TEST_F(LifetimeTest, TheFirstToEndIsTheOneToSweepFor) {
  const SessionId maker = Open();
  EXPECT_TRUE(PutFor(maker, "a", hours(2)).sweep_at.has_value());
  EXPECT_FALSE(PutFor(maker, "b", hours(3)).sweep_at.has_value());
  EXPECT_TRUE(PutFor(maker, "c", hours(1)).sweep_at.has_value());
}

TEST_F(LifetimeTest, ALifetimeBeyondTheClocksIsForEver) {
  const SessionId maker = Open();
  const auto share = PutFor(maker, "a", std::chrono::milliseconds::max());
  ASSERT_TRUE(share.sweep_at.has_value());
  EXPECT_GT(*share.sweep_at, Clock::now() + hours(24 * 365));
}

// A share that went before its expiry does not expire again.
TEST_F(LifetimeTest, WhatIsWithdrawnOrReplacedEndsOnce) {
  const SessionId maker = Open();
  PutFor(maker, "a", seconds(10));
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  PutFor(maker, "b", seconds(10));
  PutFor(maker, "b", hours(10));
  Sweep(Clock::now() + seconds(20));
  EXPECT_TRUE(IsThere("b"));
  EXPECT_FALSE(IsThere("a"));
}

TEST_F(LifetimeTest, SharesMayGoWithTheirMaker) {
  config_.namespaces["volatile"].withdraw_on_exit = true;
  const SessionId maker = Open();
  const Handle given_back = Arena(maker, kPage, "volatile");
  ASSERT_TRUE(broker().Publish(maker, Call(given_back, "of an arena given back", 0, 256, "volatile")).ok());
  GiveBack(maker, given_back);
  PutFor(maker, "a", seconds(0), "volatile");
  PutFor(maker, "leased", seconds(0), "volatile");
  PutFor(maker, "kept", seconds(0));
  PutFor(Open(), "another's", seconds(0), "volatile");
  const SessionId reader = Open();
  ASSERT_TRUE(Acquire(reader, {{.name = "leased"}}, "volatile").ok());
  broker().EndSession(maker);
  Sweep();
  for (const char* name : {"of an arena given back", "a", "leased"}) EXPECT_FALSE(IsThere(name, "volatile")) << name;
  EXPECT_TRUE(IsThere("another's", "volatile"));
  EXPECT_TRUE(IsThere("kept"));
  EXPECT_EQ(Now().withdrawn_shares, 1u);
  broker().EndSession(reader);
  Sweep();
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_EQ(Now().arenas, 2u);
}

TEST_F(LifetimeTest, WhatIsInAChannelHasNoLifetimeAndGoesWithNobody) {
  config_.share_lifetime = seconds(1);
  config_.withdraw_on_exit = true;
  const SessionId sender = Open();
  const SessionId receiver = Open();
  const auto out = broker().OpenChannel(sender, {"default", "c", ChannelRole::kSender, {}});
  const auto in = broker().OpenChannel(receiver, {"default", "c", ChannelRole::kReceiver, {}});
  auto call = Call(Arena(sender), "", 0);
  call.channel = out->end;
  ASSERT_TRUE(broker().Publish(sender, call).ok());
  broker().EndSession(sender);
  Sweep(Clock::now() + hours(1));
  EXPECT_TRUE(broker().Receive(receiver, in->end, 0, true).ok());
}

}  // namespace
}  // namespace arraybridge::daemon
