// SPDX-License-Identifier: Apache-2.0
// Rights in a shared namespace, and changes of the configuration.
#include <sys/mman.h>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using Who = AccessEntry::Who;
using ::testing::HasSubstr;

constexpr uint32_t kWriter = 1000;
constexpr uint32_t kReader = 1001;
constexpr uint32_t kStranger = 1002;

AccessEntry User(uint32_t uid, Right right = Right::kWrite) { return {Who::kUser, uid, {}, right}; }

class RightsTest : public BrokerTest {
 protected:
  RightsTest() { config_.namespaces["team"].access = {User(kWriter), User(kReader, Right::kRead)}; }

  SessionId With(Peer peer) {
    const auto opened = broker().OpenSession(std::move(peer));
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened->session;
  }
  PublishedShare Put(SessionId session, std::string_view name, std::string_view ns = "team") {
    const Handle arena = Arena(session, kPage, ns);
    const auto share = broker().Publish(session, Call(arena, name, 0, 256, ns));
    EXPECT_TRUE(share.ok()) << share.status().ToString();
    return *share;
  }
  // Calls every verb that names a namespace and returns the results.
  std::vector<Status> Everything(SessionId session, const std::string& ns) {
    const Handle own = Arena(session);
    const ShareKey key{.name = "a"};
    std::vector<Status> told;
    told.push_back(broker().Allocate(session, {ns, kHost, kPage}).status());
    told.push_back(broker().CheckAllocate(session, {ns, kHost, kPage}));
    told.push_back(broker().Publish(session, Call(own, "a", 0, 256, ns)).status());
    told.push_back(Acquire(session, {key}, ns).status());
    told.push_back(Withdraw(session, {key}, ns).status());
    told.push_back(broker().OpenChannel(session, {ns, "c", ChannelRole::kSender, {}}).status());
    told.push_back(broker().OpenChannel(session, {ns, "c", ChannelRole::kReceiver, {}}).status());
    told.push_back(broker().ExportCatalogue(session, ns).status());
    told.push_back(broker().ExportHazardPage(session, ns).status());
    told.push_back(broker().HazardPageMapped(session, ns));
    told.push_back(broker().OwnerOf(session, ns, Right::kRead).status());
    return told;
  }
  std::vector<std::string> Listed(SessionId session) {
    std::vector<std::string> names;
    ListFilter filter;
    filter.page_size = 1;  // checks page tokens, too
    do {
      const auto page = broker().ListShares(session, filter);
      EXPECT_TRUE(page.ok()) << page.status().ToString();
      for (const ShareRow& row : page->rows) names.push_back(row.facts->ns + "/" + row.facts->name);
      filter.page_token = page->next;
    } while (!filter.page_token.empty());
    return names;
  }
};

TEST_F(RightsTest, WhoIsNamedSharesOneNamespace) {
  config_.namespaces["team"].access = {User(kWriter), User(kReader)};
  const SessionId writer = Open(kWriter);
  const SessionId other = Open(kReader);
  Put(writer, "a");
  EXPECT_TRUE(Acquire(other, {{.name = "a"}}, "team").ok());
  Put(other, "b");
  EXPECT_TRUE(Acquire(writer, {{.name = "b"}}, "team").ok());
  EXPECT_TRUE(Withdraw(other, {{.name = "a"}}, "team").ok());
  EXPECT_THAT(Listed(writer), testing::ElementsAre("team/b"));
}

TEST_F(RightsTest, WhoMayOnlyReadWritesNothing) {
  const SessionId writer = Open(kWriter);
  Put(writer, "a");
  const SessionId reader = Open(kReader);
  const auto read = Acquire(reader, {{.name = "a"}}, "team");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(broker().Export(reader, ArenaId{read->shares[0].handle.arena}, read->shares[0].handle.generation).ok());
  EXPECT_THAT(Listed(reader), testing::ElementsAre("team/a"));
  const std::vector<Status> told = Everything(reader, "team");
  size_t refused = 0;
  for (const Status& status : told) {
    if (status.ok()) continue;
    ++refused;
    EXPECT_THAT(status, FailsWith(Code::kPermissionDenied, "NAMESPACE_READ_ONLY"));
    EXPECT_THAT(status.message(), HasSubstr("user 1001 may only read namespace 'team'"));
  }
  EXPECT_EQ(refused, 9u);  // Allocate, CheckAllocate, Publish, Withdraw, both ends, reading without calls
  const auto rows = broker().ListNamespaces(reader, {.ns = "team", .page_size = 9});
  ASSERT_EQ(rows->rows.size(), 1u);
  EXPECT_TRUE(rows->rows[0].read_only);
  EXPECT_EQ(rows->rows[0].uid, kSharedByUsers);
}

TEST_F(RightsTest, AStrangerIsToldTheSameWhateverIsThere) {
  const SessionId stranger = Open(kStranger);
  const std::vector<Status> before = Everything(stranger, "team");
  const SessionId writer = Open(kWriter);
  Put(writer, "a");
  ASSERT_TRUE(broker().ExportCatalogue(writer, "team").ok());
  ASSERT_TRUE(broker().OpenChannel(writer, {"team", "c", ChannelRole::kSender, {}}).ok());
  const std::vector<Status> after = Everything(stranger, "team");
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_THAT(before[i], FailsWith(Code::kPermissionDenied, "NAMESPACE_DENIED")) << i;
    EXPECT_EQ(before[i].ToString(), after[i].ToString()) << i;
    EXPECT_EQ(before[i].metadata(), after[i].metadata()) << i;
  }
  EXPECT_THAT(before[0].message(), HasSubstr("user 1002 may not use namespace 'team'"));
  EXPECT_THAT(Listed(stranger), testing::IsEmpty());
  EXPECT_THAT(broker().ListNamespaces(stranger, {.ns = "team", .page_size = 9})->rows, testing::IsEmpty());
  // A page token that names the position does not help either.
  EXPECT_THAT(broker().ListShares(stranger, {.page_size = 9, .page_token = "0:4294967295/"})->rows, testing::IsEmpty());
  EXPECT_THAT(broker().ListShares(stranger, {.page_size = 9, .page_token = "0:1000/"})->rows, testing::IsEmpty());
}

TEST_F(RightsTest, UnlistedNamesMayBeRefusedLikeAnybodysElse) {
  config_.unlisted_namespaces = false;
  const SessionId stranger = Open(kStranger);
  const std::vector<Status> there = Everything(stranger, "team");
  const std::vector<Status> not_there = Everything(stranger, "maet");
  for (size_t i = 0; i < there.size(); ++i) {
    EXPECT_THAT(not_there[i], FailsWith(Code::kPermissionDenied, "NAMESPACE_DENIED")) << i;
    std::string told = not_there[i].message();
    told.replace(told.find("maet"), 4, "team");
    EXPECT_EQ(there[i].message(), told);
  }
  EXPECT_THAT(Acquire(stranger, {{.name = "a"}}, "bad\nname"), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
}

TEST_F(RightsTest, GroupsCountHoweverOneIsInThem) {
  config_.namespaces["team"].access = {{Who::kGroup, 500, {}, Right::kWrite}};
  EXPECT_TRUE(broker().OwnerOf(With({.uid = 1, .gid = 500}), "team", Right::kWrite).ok());
  EXPECT_TRUE(broker().OwnerOf(With({.uid = 1, .gid = 7, .groups = {9, 500}}), "team", Right::kWrite).ok());
  EXPECT_FALSE(broker().OwnerOf(With({.uid = 500, .gid = 7, .groups = {9, 501}}), "team", Right::kRead).ok());
}

TEST_F(RightsTest, ATokenOpensWhatItsUserMayNotUse) {
  config_.namespaces["team"].access = {{Who::kToken, 0, "0123456789abcdef", Right::kRead},
                                       {Who::kToken, 0, "fedcba9876543210", Right::kWrite}};
  EXPECT_TRUE(broker().OwnerOf(With({.uid = 1, .token = "0123456789abcdef"}), "team", Right::kRead).ok());
  EXPECT_FALSE(broker().OwnerOf(With({.uid = 1, .token = "0123456789abcdef"}), "team", Right::kWrite).ok());
  EXPECT_TRUE(broker().OwnerOf(With({.uid = 1, .token = "fedcba9876543210"}), "team", Right::kWrite).ok());
  const auto wrong = broker().OwnerOf(With({.uid = 1, .token = "fedcba9876543211"}), "team", Right::kRead);
  EXPECT_THAT(wrong, FailsWith(Code::kPermissionDenied, "NAMESPACE_DENIED"));
  EXPECT_THAT(wrong.status().message(), testing::Not(HasSubstr("fedcba")));
  EXPECT_FALSE(broker().OwnerOf(With({.uid = 1, .token = "0123456789abcde"}), "team", Right::kRead).ok());
  EXPECT_FALSE(broker().OwnerOf(With({.uid = 1}), "team", Right::kRead).ok());
}

TEST_F(RightsTest, AnyoneIsEverybody) {
  config_.namespaces["team"].access = {{Who::kAnyone, 0, {}, Right::kRead}, User(kWriter)};
  EXPECT_TRUE(broker().OwnerOf(Open(4711), "team", Right::kRead).ok());
  EXPECT_FALSE(broker().OwnerOf(Open(4711), "team", Right::kWrite).ok());
  EXPECT_TRUE(broker().OwnerOf(Open(kWriter), "team", Right::kWrite).ok());
}

TEST_F(RightsTest, ATableWithoutAccessLeavesEveryUserHisOwn) {
  config_.namespaces["scratch"].quota_bytes = 2 * kPage;
  const SessionId one = Open(kWriter);
  const SessionId other = Open(kReader);
  Put(one, "a", "scratch");
  EXPECT_THAT(Acquire(other, {{.name = "a"}}, "scratch"), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_THAT(broker().Allocate(one, {"scratch", kHost, 2 * kPage}),
              FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_TRUE(broker().Allocate(other, {"scratch", kHost, 2 * kPage}).ok());
  EXPECT_THAT(broker().Allocate(one, {"scratch", kHost, 3 * kPage}),
              FailsWith(Code::kResourceExhausted, "QUOTA_TOO_SMALL"));
}

// Everything that a user has in a shared namespace counts for that user.
TEST_F(RightsTest, EverybodyPaysForWhatHeAllocates) {
  config_.namespaces["team"].access = {User(kWriter), User(kReader)};
  config_.limits.bytes_per_uid = 3 * kPage;
  const SessionId one = Open(kWriter);
  const SessionId other = Open(kReader);
  const Handle arena = Arena(one, 2 * kPage, "team");
  EXPECT_THAT(broker().Allocate(one, {"team", kHost, 2 * kPage}),
              FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_THAT(broker().Allocate(one, {"own", kHost, 2 * kPage}), FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_TRUE(broker().Allocate(other, {"team", kHost, 3 * kPage}).ok());
  GiveBack(one, arena);
  Sweep();
  EXPECT_TRUE(broker().Allocate(one, {"own", kHost, 3 * kPage}).ok());
}

TEST_F(RightsTest, DescriptionsAreTheirMakersToPayFor) {
  config_.namespaces["team"].access = {User(kWriter), User(kReader)};
  config_.limits.object_bytes_per_uid = object_bytes::kArena + 2 * object_bytes::kShare + 15;
  const SessionId one = Open(kWriter);
  const SessionId other = Open(kReader);
  const Handle arena_of_one = Arena(one, kPage, "team");
  const Handle arena_of_other = Arena(other, kPage, "team");
  uint64_t offset = 0;
  const auto put = [&](SessionId session, std::string_view name, bool replace = false) {
    auto call = Call(session == one ? arena_of_one : arena_of_other, name, offset += 256, 256, "team");
    call.description = "12345678";
    call.replace = replace;
    return broker().Publish(session, std::move(call)).status();
  };
  EXPECT_TRUE(put(one, "a").ok());
  EXPECT_THAT(put(one, "b"), FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  EXPECT_TRUE(put(other, "b").ok());
  // Replacing another user's share does not make room for one's own.
  EXPECT_THAT(put(other, "a", true), FailsWith(Code::kResourceExhausted, "TOO_MANY_SHARES"));
  EXPECT_TRUE(put(one, "a", true).ok());
}

TEST_F(RightsTest, NobodysOwnNamespacesTakeTheOperatorsPlace) {
  config_.limits.namespaces = 1;
  const SessionId writer = Open(kWriter);
  Put(writer, "a", "own");
  EXPECT_THAT(broker().Allocate(writer, {"more", kHost, kPage}),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_NAMESPACES"));
  EXPECT_TRUE(broker().Allocate(writer, {"team", kHost, kPage}).ok());
  EXPECT_THAT(broker().Allocate(Open(kStranger), {"x", kHost, kPage}),
              FailsWith(Code::kResourceExhausted, "TOO_MANY_NAMESPACES"));
}

TEST_F(RightsTest, WhoHasWhatIsNotForHimAnyMoreIsNamed) {
  config_.namespaces["team"].access = {User(kWriter), User(kReader)};
  const SessionId writer = Open(kWriter);
  Put(writer, "a");
  const SessionId leases = Open(kReader);
  ASSERT_TRUE(Acquire(leases, {{.name = "a"}}, "team").ok());
  const SessionId browses = Open(kReader);
  ASSERT_TRUE(broker().ExportCatalogue(browses, "team").ok());
  ASSERT_TRUE(broker().ExportHazardPage(browses, "team").ok());
  const SessionId queues = Open(kReader);
  ASSERT_TRUE(broker().OpenQueueOf(queues, "team").ok());
  const SessionId receives = Open(kReader);
  ASSERT_TRUE(broker().OpenChannel(receives, {"team", "c", ChannelRole::kReceiver, {}}).ok());
  const SessionId writes = Open(kReader);
  Arena(writes, kPage, "team");
  const SessionId idle = Open(kReader);
  EXPECT_THAT(broker().AdoptNamespaces().without_right, testing::IsEmpty());

  config_.namespaces["team"].access[1].right = Right::kRead;
  EXPECT_THAT(broker().AdoptNamespaces().without_right,
              testing::UnorderedElementsAre(browses, queues, receives, writes));
  config_.namespaces["team"].access.pop_back();
  const auto adopted = broker().AdoptNamespaces();
  EXPECT_THAT(adopted.without_right, testing::UnorderedElementsAre(leases, browses, queues, receives, writes));
  EXPECT_EQ(adopted.withdrawn, 0u);
  EXPECT_FALSE(broker().OwnerOf(idle, "team", Right::kRead).ok());
  EXPECT_THAT(Listed(writer), testing::ElementsAre("team/a"));
}

TEST_F(RightsTest, ANamespaceThatBecomesAnotherLosesWhatWasInIt) {
  const SessionId writer = Open(kWriter);
  Put(writer, "shared");
  Put(writer, "own", "scratch");
  const SessionId reader = Open(kReader);
  ASSERT_TRUE(Acquire(reader, {{.name = "shared"}}, "team").ok());
  config_.namespaces["scratch"].access = {User(kWriter)};
  config_.namespaces.erase("team");
  const auto adopted = broker().AdoptNamespaces();
  EXPECT_EQ(adopted.withdrawn, 2u);
  EXPECT_THAT(adopted.without_right, testing::UnorderedElementsAre(writer, reader));
  EXPECT_THAT(Listed(writer), testing::IsEmpty());
  for (const SessionId session : adopted.without_right) broker().EndSession(session);
  Sweep();
  EXPECT_EQ(Now().charged_bytes, 0u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  // Both names can be used with their new meaning.
  const SessionId again = Open(kWriter);
  Put(again, "a");
  Put(again, "b", "scratch");
  EXPECT_THAT(Listed(again), testing::ElementsAre("team/a", "scratch/b"));
}

// An arena cannot be published in the new namespace of its old name.
TEST_F(RightsTest, AnArenaStaysWhereItWasAllocated) {
  const SessionId writer = Open(kWriter);
  const Handle arena = Arena(writer, kPage, "scratch");
  config_.namespaces["scratch"].access = {User(kWriter)};
  EXPECT_THAT(broker().AdoptNamespaces().without_right, testing::ElementsAre(writer));
  EXPECT_THAT(broker().Publish(writer, Call(arena, "a", 0, 256, "scratch")),
              FailsWith(Code::kFailedPrecondition, "OTHER_NAMESPACE"));
}

TEST_F(RightsTest, QuotasAreAdopted) {
  const SessionId writer = Open(kWriter);
  Put(writer, "a");
  config_.namespaces["team"].quota_bytes = kPage;
  broker().AdoptNamespaces();
  EXPECT_THAT(broker().Allocate(writer, {"team", kHost, kPage}), FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_TRUE(broker().Allocate(writer, {"default", kHost, 2 * kPage}).ok());
}

}  // namespace
}  // namespace arraybridge::daemon
