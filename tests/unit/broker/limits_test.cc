// SPDX-License-Identifier: Apache-2.0
// Limits of one user's use of the daemon's resources. Each is reached, and another user is not affected.
#include <map>
#include <string>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

class LimitsTest : public BrokerTest {
 protected:
  Status Browse(SessionId session, std::string_view ns) {
    const auto table = broker().ExportCatalogue(session, ns);
    if (!table.ok()) return table.status();
    return broker().ExportHazardPage(session, ns).status();
  }
  Status Open(SessionId session, std::string_view channel, ChannelRole role) {
    return broker().OpenChannel(session, {"default", channel, role, {}}).status();
  }
  using BrokerTest::Open;
};

// Four users take what they can get, then others do; root still gets one. `take`: one more for this user.
template <class Take>
void FillWithUsers(uint64_t in_all, uint64_t of_one, Take take) {
  uint64_t taken = 0;
  uint64_t first = 0;
  for (uint32_t uid = 1000; uid < 1004; ++uid) {
    while (take(uid)) ++taken;
    if (uid == 1000) first = taken;
  }
  EXPECT_EQ(first, of_one) << "one user gets all that a user may have";
  EXPECT_LE(taken, in_all - in_all / 16);
  EXPECT_TRUE(take(2000)) << "a fifth user";
  EXPECT_TRUE(take(2000)) << "it may have some, too";
  for (uint32_t uid = 3000; uid < 3100; ++uid) {
    while (take(uid)) ++taken;
  }
  EXPECT_FALSE(take(4000));
  EXPECT_TRUE(take(0)) << "root";
}

TEST_F(LimitsTest, FourUsersDoNotTakeAllSessions) {
  FillWithUsers(1024, 256, [this](uint32_t uid) {
    const auto opened = broker().OpenSession({.uid = uid});
    EXPECT_TRUE(opened.ok() || opened.status().reason() == "TOO_MANY_SESSIONS");
    return opened.ok();
  });
  EXPECT_EQ(broker().OpenSession({.uid = 1000}).status().message(), "limit sessions_per_uid (256) is reached");
  EXPECT_THAT(broker().OpenSession({.uid = 2000}).status().message(),
              testing::HasSubstr("limit sessions (1024) is almost reached: user 2000 has "));
}

TEST_F(LimitsTest, FourUsersDoNotTakeAllWatches) {
  std::map<uint32_t, SessionId> sessions;
  FillWithUsers(64, 16, [&](uint32_t uid) {
    if (!sessions.contains(uid)) sessions[uid] = Open(uid);
    const auto watch = broker().OpenWatch(sessions[uid], {});
    EXPECT_TRUE(watch.ok() || watch.status().reason() == "TOO_MANY_WATCHERS");
    return watch.ok();
  });
}

TEST_F(LimitsTest, FourUsersDoNotTakeAllNamespaces) {
  std::map<uint32_t, SessionId> sessions;
  uint64_t number = 0;
  FillWithUsers(256, 64, [&](uint32_t uid) {
    if (!sessions.contains(uid)) sessions[uid] = Open(uid);
    const std::string ns = std::to_string(number++);
    const auto allocated = broker().Allocate(sessions[uid], {ns, kHost, 1});
    EXPECT_TRUE(allocated.ok() || allocated.status().reason() == "TOO_MANY_NAMESPACES");
    return allocated.ok();
  });
}

TEST_F(LimitsTest, PagesOfHolds) {
  config_.limits.object_bytes_per_uid = 2 * object_bytes::kArena + 3 * object_bytes::kHazardPage - 1;
  const auto first = Open(kAlice);
  const auto second = Open(kAlice);
  Arena(first, kPage, "m");
  Arena(first, kPage, "n");
  EXPECT_TRUE(Browse(first, "m").ok());
  EXPECT_TRUE(Browse(first, "m").ok()) << "the same page";
  EXPECT_TRUE(Browse(second, "m").ok());
  const Status third = Browse(first, "n");
  EXPECT_THAT(third, FailsWith(Code::kResourceExhausted, "TOO_MANY_HAZARD_PAGES"));
  EXPECT_THAT(third.message(), testing::HasSubstr("limits.object_bytes_per_uid 28671"));
  const auto other = Open(kBob);
  Arena(other, kPage, "m");
  EXPECT_TRUE(Browse(other, "m").ok());
  broker().EndSession(second);
  EXPECT_TRUE(Browse(first, "n").ok()) << "there is room again";
}

TEST_F(LimitsTest, ANamespaceThatGoesTakesItsPagesWithIt) {
  config_.limits.object_bytes_per_uid = object_bytes::kArena + 2 * object_bytes::kHazardPage - 1;
  const auto session = Open(kAlice);
  const auto arena = Arena(session, kPage, "m");
  ASSERT_TRUE(Browse(session, "m").ok());
  GiveBack(session, arena);
  Sweep();
  Arena(session, kPage, "n");
  EXPECT_TRUE(Browse(session, "n").ok());
}

TEST_F(LimitsTest, Descriptors) {
  config_.limits.descriptors_per_uid = 4 + 2 + 1 + 1;  // a session, an arena, a catalogue, a page that is not mapped
  const auto alice = Open(kAlice);
  const auto arena = Arena(alice, kPage, "m");
  ASSERT_TRUE(Browse(alice, "m").ok());
  const auto refused = broker().Allocate(alice, {"m", kHost, kPage});
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "TOO_MANY_DESCRIPTORS"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("descriptors_per_uid (8)"));
  EXPECT_TRUE(broker().Allocate(Open(kBob), {"m", kHost, kPage}).ok());
  ASSERT_TRUE(broker().HazardPageMapped(alice, "m").ok());
  ASSERT_TRUE(broker().HazardPageMapped(alice, "m").ok());
  EXPECT_THAT(broker().Allocate(alice, {"m", kHost, kPage}),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_DESCRIPTORS"))
      << "the mapped page released one, an arena needs two";
  GiveBack(alice, arena);
  Sweep();
  EXPECT_TRUE(broker().Allocate(alice, {"m", kHost, kPage}).ok());
}

TEST_F(LimitsTest, DescriptorsOfDirectChannels) {
  config_.limits.descriptors_per_uid = 4 + 6;
  const auto session = Open(kAlice);
  const auto sends = broker().OpenChannel(session, {"default", "c", ChannelRole::kSender, {}});
  ASSERT_TRUE(sends.ok());
  ASSERT_TRUE(Open(session, "c", ChannelRole::kReceiver).ok());
  EXPECT_THAT(broker().ExportDirectChannel(session, sends->end),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_DESCRIPTORS"));
  config_.limits.descriptors_per_uid = 4 + 7;
  EXPECT_TRUE(broker().ExportDirectChannel(session, sends->end).ok());
}

TEST_F(LimitsTest, EndsOfChannels) {
  config_.limits.channel_ends_per_session = 2;
  config_.limits.object_bytes_per_uid = 4 * object_bytes::kChannelEnd - 1;
  const auto first = Open(kAlice);
  const auto second = Open(kAlice);
  ASSERT_TRUE(Open(first, "a", ChannelRole::kSender).ok());
  ASSERT_TRUE(Open(first, "a", ChannelRole::kReceiver).ok());
  Status refused = Open(first, "a", ChannelRole::kReceiver);
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "TOO_MANY_CHANNEL_ENDS"));
  EXPECT_THAT(refused.message(), testing::HasSubstr("channel_ends_per_session (2)"));
  ASSERT_TRUE(Open(second, "a", ChannelRole::kReceiver).ok());
  refused = Open(second, "a", ChannelRole::kReceiver);
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "TOO_MANY_CHANNEL_ENDS"));
  EXPECT_THAT(refused.message(),
              testing::HasSubstr("takes 3072 bytes of the broker's own memory, and this needs 1024 more"));
  EXPECT_TRUE(Open(Open(kBob), "a", ChannelRole::kReceiver).ok());
  broker().EndSession(first);
  EXPECT_TRUE(Open(second, "a", ChannelRole::kReceiver).ok());
}

TEST_F(LimitsTest, SharesOverAllNamespaces) {
  config_.limits.object_bytes_per_uid = 2 * object_bytes::kArena + 3 * object_bytes::kShare - 1;
  const auto alice = Open(kAlice);
  const auto arena = Arena(alice, kPage, "m");
  const auto other = Arena(alice, kPage, "n");
  ASSERT_TRUE(broker().Publish(alice, Call(arena, "a", 0, 256, "m")).ok());
  ASSERT_TRUE(broker().Publish(alice, Call(other, "a", 0, 256, "n")).ok());
  const auto third = broker().Publish(alice, Call(arena, "b", 256, 256, "m"));
  EXPECT_THAT(third, FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  EXPECT_THAT(third.status().message(), testing::HasSubstr("what user 1000 has takes "));
  auto instead = Call(arena, "a", 256, 256, "m");
  instead.replace = true;
  EXPECT_TRUE(broker().Publish(alice, instead).ok()) << "it replaces one share";
  const auto bob = Open(kBob);
  EXPECT_TRUE(broker().Publish(bob, Call(Arena(bob), "a")).ok());
  ASSERT_TRUE(Withdraw(alice, {{.name = "a"}}, "n").ok());
  EXPECT_TRUE(broker().Publish(alice, Call(arena, "b", 512, 256, "m")).ok());
}

TEST_F(LimitsTest, LeasesOfAllSessions) {
  config_.limits.object_bytes_per_uid = object_bytes::kArena + object_bytes::kShare + 3 * object_bytes::kLease - 1;
  const auto maker = Open(kAlice);
  Publish(maker, Arena(maker), "a");
  const auto reader = Open(kAlice);
  const auto lease = Lease(maker, "a");
  Lease(reader, "a");
  const auto refused = Acquire(reader, {{.name = "a"}});
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "TOO_MANY_LEASES"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("object_bytes_per_uid"));
  Release(maker, lease);
  EXPECT_TRUE(Acquire(reader, {{.name = "a"}}).ok());
  broker().EndSession(reader);
  EXPECT_TRUE(Acquire(maker, {{.name = "a"}, {.name = "a"}}).ok());
}

}  // namespace
}  // namespace arraybridge::daemon
