// SPDX-License-Identifier: Apache-2.0
// A forward publishes bytes of a share once more: one range, several shares, freed with the last of them.
#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/hazard_reader.h"

namespace arraybridge::daemon {
namespace {

class ForwardTest : public BrokerTest {
 protected:
  static PublishCall Again(const Handle& arena, std::string_view name, ShareSource source, uint64_t offset = 0,
                           uint64_t size = 256) {
    PublishCall call = Call(arena, name, offset, size);
    call.source = source;
    return call;
  }
  static ShareSource Of(LeaseId lease) { return {.lease = lease}; }
  static ShareSource Of(const PublishedShare& share) { return {.share = share.share}; }
  // "b" of another session, a forward of "a"; the session has no lease any more.
  SessionId Forward(const Handle& arena) {
    const auto session = Open();
    const LeaseId lease = Lease(session, "a");
    EXPECT_TRUE(broker().Publish(session, Again(arena, "b", Of(lease))).ok());
    EXPECT_EQ(Release(session, lease), 1u);
    return session;
  }
  ShareRow RowOf(SessionId session, std::string_view name) {
    ListFilter filter;
    filter.name_prefix = name;
    filter.page_size = 10;
    auto page = broker().ListShares(session, filter);
    EXPECT_TRUE(page.ok() && page->rows.size() == 1) << name;
    return std::move(page->rows.at(0));
  }
  uint64_t ShareBytes(SessionId session) {
    ListFilter filter;
    filter.page_size = 10;
    return broker().ListNamespaces(session, filter)->rows.at(0).share_bytes;
  }
};

TEST_F(ForwardTest, HasTheBytesOfItsSource) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto source = Publish(maker, arena, "a", 512, 1024);
  const auto session = Open();
  const LeaseId lease = Lease(session, "a");
  auto call = Again(arena, "b", Of(lease), 768, 256);
  call.description = "a part";
  ASSERT_TRUE(broker().Publish(session, call).ok());
  const auto got = Acquire(Open(), {{.name = "b"}});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->shares.at(0).handle.arena, arena.arena);
  EXPECT_EQ(got->shares.at(0).handle.offset, 768u);
  EXPECT_EQ(got->shares.at(0).handle.size, 256u);
  EXPECT_EQ(got->shares.at(0).facts->description, "a part");
  EXPECT_EQ(RowOf(session, "b").forward_of, source.share);
  EXPECT_EQ(RowOf(session, "a").forward_of, ShareId{});
  EXPECT_EQ(Now().forwards_total, 1u);
}

TEST_F(ForwardTest, KeepsTheRangeUntilTheLastOfThemIsGone) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  Forward(arena);
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  EXPECT_THAT(broker().Publish(maker, Call(arena, "c")), FailsWith(Code::kFailedPrecondition, "OVERLAP"));
  const auto reader = Open();
  const LeaseId lease = Lease(reader, "b");
  ASSERT_TRUE(Withdraw(maker, {{.name = "b"}}).ok());
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty()) << "a lease on the forward";
  Release(reader, lease);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_TRUE(broker().Publish(maker, Call(arena, "c")).ok());
}

TEST_F(ForwardTest, AForwardOfAForwardHasTheSameRoot) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto root = Publish(maker, arena, "a", 0, 1024);
  const auto session = Open();
  const auto b = broker().Publish(session, Again(arena, "b", Of(root), 256, 768));
  ASSERT_TRUE(b.ok());
  ASSERT_TRUE(broker().Publish(session, Again(arena, "c", Of(*b), 512, 256)).ok());
  EXPECT_EQ(RowOf(session, "c").forward_of, root.share);
  ASSERT_TRUE(Withdraw(session, {{.name = "a"}, {.name = "b"}}).ok());
  EXPECT_EQ(Now().withdrawn_shares, 1u) << "the root; b needs nothing more";
  EXPECT_TRUE(Acquire(Open(), {{.name = "c"}}).ok());
  EXPECT_THAT(broker().Publish(session, Again(arena, "d", Of(*b))),
              FailsWith(Code::kFailedPrecondition, "NOT_FORWARDED"));
}

TEST_F(ForwardTest, OutlivesTheMakerOfItsSource) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "");
  const auto named = Publish(maker, arena, "a", 256);
  const auto session = Open();
  ASSERT_TRUE(broker().Publish(session, Again(arena, "b", Of(named), 256)).ok());
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  broker().EndSession(maker);
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().arenas, 1u);
  EXPECT_EQ(Release(session, Lease(session, "b")), 1u);
  ASSERT_TRUE(Withdraw(session, {{.name = "b"}}).ok());
  EXPECT_EQ(Now().arenas, 0u);
  world().held = false;
  broker().EndSession(session);
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().charged_bytes, 0u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
}

TEST_F(ForwardTest, IsLeftBehindByItsOwnMaker) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  const auto session = Forward(arena);
  const auto unnamed =
      broker().Publish(session, Again(arena, "", {.share = Acquire(maker, {{.name = "a"}})->shares.at(0).facts->id}));
  ASSERT_TRUE(unnamed.ok());
  broker().EndSession(session);
  EXPECT_TRUE(Acquire(Open(), {{.name = "b"}}).ok()) << "a named share stays";
  EXPECT_EQ(Now().shares, 3u);
  Sweep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Now().shares, 2u) << "the unnamed one has had its grace";
}

TEST_F(ForwardTest, GoesWithItsMakerWhereTheNamespaceSaysSo) {
  config_.namespaces["default"].withdraw_on_exit = true;
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  broker().EndSession(Forward(arena));
  EXPECT_THAT(Acquire(Open(), {{.name = "b"}}), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_TRUE(Acquire(Open(), {{.name = "a"}}).ok());
}

TEST_F(ForwardTest, IsChargedForItsDescriptionAndNotForItsBytes) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  const uint64_t charged = Now().charged_bytes;
  config_.limits.object_bytes_per_uid = object_bytes::kArena + 3 * object_bytes::kShare + 3 * object_bytes::kLease;
  Forward(arena);
  EXPECT_EQ(Now().charged_bytes, charged);
  EXPECT_EQ(ShareBytes(maker), 256u) << "counted once";
  const auto session = Open();
  const LeaseId lease = Lease(session, "a");
  ASSERT_TRUE(broker().Publish(session, Again(arena, "c", Of(lease))).ok());
  EXPECT_THAT(broker().Publish(session, Again(arena, "d", Of(lease))),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  config_.limits.object_bytes_per_uid = 8 << 10;
  auto call = Again(arena, "d", Of(lease));
  call.description = std::string(8 << 10, 'd');
  EXPECT_THAT(broker().Publish(session, call), FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  call.description.clear();
  EXPECT_TRUE(broker().Publish(session, call).ok());
}

TEST_F(ForwardTest, ReplacesItsOwnSource) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto first = Publish(maker, arena, "a", 0, 1024);
  const auto session = Open();
  auto call = Again(arena, "a", Of(first), 256, 256);
  call.replace = true;
  const auto second = broker().Publish(session, call);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  call = Again(arena, "a", Of(*second), 256, 256);
  call.replace = true;
  ASSERT_TRUE(broker().Publish(session, call).ok());
  EXPECT_EQ(Now().shares, 1u);
  EXPECT_EQ(Now().withdrawn_shares, 1u) << "the root";
  EXPECT_EQ(ShareBytes(session), 1024u);
  ASSERT_TRUE(Withdraw(session, {{.name = "a"}}).ok());
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(ForwardTest, GoesThroughAChannel) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a");
  const auto sender = Open();
  const auto receiver = Open();
  const auto sending = broker().OpenChannel(sender, {"default", "c", ChannelRole::kSender, 2})->end;
  const auto receiving = broker().OpenChannel(receiver, {"default", "c", ChannelRole::kReceiver, 0})->end;
  auto call = Again(arena, "", Of(Lease(sender, "a")));
  call.channel = sending;
  ASSERT_TRUE(broker().Publish(sender, call).ok());
  broker().EndSession(sender);
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  const auto received = broker().Receive(receiver, receiving, 0, true);
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  EXPECT_EQ(received->shares.at(0).handle.arena, arena.arena);
  // A received share has no name: its lease is needed to forward it.
  const PublishedShare by_number{received->shares.at(0).facts->id, {}, 0, {}, {}};
  EXPECT_THAT(broker().Publish(maker, Again(arena, "b", Of(by_number))),
              FailsWith(Code::kFailedPrecondition, "NOT_FORWARDED"));
  EXPECT_TRUE(broker().Publish(receiver, Again(arena, "b", Of(received->shares.at(0).lease))).ok());
  Release(receiver, received->shares.at(0).lease);
  ASSERT_TRUE(Withdraw(maker, {{.name = "b"}}).ok());
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(ForwardTest, AHazardSlotSuffices) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader reader(broker(), Open());
  Publish(maker, arena, "x", 512);
  Reader late(broker(), Open());
  const auto share = Publish(maker, arena, "a");
  ASSERT_TRUE(late.Hold("a"));
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  EXPECT_TRUE(broker().hazards_waiting());
  EXPECT_THAT(broker().Publish(maker, Again(arena, "b", Of(share))),
              FailsWith(Code::kFailedPrecondition, "NOT_FORWARDED"))
      << "without one";
  ASSERT_TRUE(broker().Publish(late.session, Again(arena, "b", Of(share))).ok());
  EXPECT_FALSE(broker().hazards_waiting()) << "the root waits for its forward";
  late.Clear();
  broker().PollHazards();
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  ASSERT_TRUE(late.Hold("b"));
  ASSERT_TRUE(Withdraw(maker, {{.name = "b"}}).ok());
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  late.Clear();
  EXPECT_EQ(broker().PollHazards().freed, 1u);
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(ForwardTest, TheRootMayWaitForHazardSlotsAfterItsLastForward) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader reader(broker(), Open());
  const auto share = Publish(maker, arena, "a");
  ASSERT_TRUE(reader.Hold("a"));
  ASSERT_TRUE(broker().Publish(maker, Again(arena, "b", Of(share))).ok());
  ASSERT_TRUE(reader.Hold("b", 1));
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}, {.name = "b"}}).ok());
  reader.Clear(1);
  EXPECT_EQ(broker().PollHazards().freed, 1u) << "the forward";
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  reader.Clear();
  EXPECT_EQ(broker().PollHazards().freed, 1u) << "the root";
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

TEST_F(ForwardTest, RefusesWhatIsNotHeldOrNotThere) {
  const auto maker = Open();
  const auto arena = Arena(maker);
  const auto share = Publish(maker, arena, "a", 256, 512);
  const auto session = Open();
  const LeaseId lease = Lease(session, "a");
  const auto refused = FailsWith(Code::kFailedPrecondition, "NOT_FORWARDED");
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", Of(lease), 0, 256)), refused) << "before it";
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", Of(lease), 256, 768)), refused) << "beyond it";
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", Of(lease), 256, 0)), refused);
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", Of(lease), 264, 8)), refused) << "not aligned";
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", Of(lease), 512, UINT64_MAX)), refused);
  EXPECT_THAT(broker().Publish(maker, Again(arena, "b", Of(lease), 256)), refused) << "of another session";
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", {.share = ShareId{Number(share.share) + 1}}, 256)), refused);
  EXPECT_THAT(broker().Publish(session, Again(arena, "b", {.direct_channel = 7}, 256)), refused);
  const auto other = Arena(maker);
  EXPECT_THAT(broker().Publish(session, Again(other, "b", Of(lease), 256)), refused) << "another arena";
  auto stale = Again(arena, "b", Of(lease), 256);
  stale.arena_generation ^= 1;
  EXPECT_THAT(broker().Publish(session, stale), refused);
  auto sealed = Again(arena, "b", Of(lease), 256);
  sealed.sealed = true;
  EXPECT_THAT(broker().Publish(session, sealed), refused) << "its writer may still write";
  auto elsewhere = Again(arena, "b", Of(lease), 256);
  elsewhere.ns = "elsewhere";
  EXPECT_THAT(broker().Publish(session, elsewhere), refused);
  const auto stranger = Open(2000);
  EXPECT_THAT(broker().Publish(stranger, Again(arena, "b", Of(share), 256)), refused);
  EXPECT_EQ(Now().shares, 1u);
}

}  // namespace
}  // namespace arraybridge::daemon
