// SPDX-License-Identifier: Apache-2.0
// The verbs of administrators, on the namespaces of all users.
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

class AdministrationTest : public BrokerTest {
 protected:
  AdministrationTest() {
    config_.namespace_quota_bytes = 8 * kPage;
    config_.namespaces["team"].access = {{AccessEntry::Who::kAnyone, 0, {}, Right::kWrite}};
    config_.namespaces["team"].quota_bytes = 4 * kPage;
  }
  uint64_t Quota(const NamespaceOf& of) {
    const auto quota = broker().QuotaOf(of);
    EXPECT_TRUE(quota.ok()) << quota.status().ToString();
    return quota->quota_bytes;
  }
};

TEST_F(AdministrationTest, AQuotaIsOneNamespacesAlone) {
  const SessionId alice = Open(kAlice);
  Arena(alice, kPage, "own");
  ASSERT_TRUE(broker().SetQuota({"own", kAlice}, kPage).ok());
  EXPECT_THAT(broker().Allocate(alice, {"own", kHost, kPage}), FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_TRUE(broker().Allocate(alice, {"other", kHost, 2 * kPage}).ok());
  EXPECT_TRUE(broker().Allocate(Open(kBob), {"own", kHost, 2 * kPage}).ok());
  const auto told = broker().QuotaOf({"own", kAlice});
  EXPECT_EQ(told->charged_bytes, kPage);
  EXPECT_TRUE(told->set);
  EXPECT_FALSE(broker().QuotaOf({"own", kBob})->set);
  ASSERT_TRUE(broker().SetQuota({"own", kAlice}, std::nullopt).ok());
  EXPECT_EQ(Quota({"own", kAlice}), 8 * kPage);
  EXPECT_TRUE(broker().Allocate(alice, {"own", kHost, kPage}).ok());
}

TEST_F(AdministrationTest, AQuotaHoldsForWhatComesLaterAndOverReloads) {
  ASSERT_TRUE(broker().SetQuota({"team", std::nullopt}, 2 * kPage).ok());
  ASSERT_TRUE(broker().SetQuota({"own", kAlice}, 0).ok());
  broker().AdoptNamespaces();
  EXPECT_EQ(Quota({"team", kSharedByUsers}), 2 * kPage);
  const SessionId alice = Open(kAlice);
  EXPECT_THAT(broker().Allocate(alice, {"own", kHost, kPage}), FailsWith(Code::kResourceExhausted, "QUOTA_TOO_SMALL"));
  Arena(alice, 2 * kPage, "team");
  EXPECT_THAT(broker().Allocate(Open(kBob), {"team", kHost, kPage}),
              FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
}

TEST_F(AdministrationTest, OneNamespaceIsMeant) {
  for (const NamespaceOf& of : {NamespaceOf{"own", std::nullopt}, {"own", kSharedByUsers}, {"team", kAlice}}) {
    EXPECT_EQ(broker().QuotaOf(of).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(broker().SetQuota(of, 1).status().code(), Code::kInvalidArgument);
    const ShareKey key{.name = "a"};
    EXPECT_EQ(broker().Withdraw(of, {&key, 1}).status().code(), Code::kInvalidArgument);
  }
  EXPECT_THAT(broker().QuotaOf({"bad\n", kAlice}), FailsWith(Code::kInvalidArgument, "BAD_NAME"));
}

TEST_F(AdministrationTest, SetQuotasAreLimited) {
  config_.limits.namespaces = 1;
  ASSERT_TRUE(broker().SetQuota({"own", kAlice}, 1).ok());
  ASSERT_TRUE(broker().SetQuota({"own", kAlice}, 2).ok());
  EXPECT_THAT(broker().SetQuota({"own", kBob}, 1), FailsWith(Code::kResourceExhausted, "TOO_MANY_NAMESPACES"));
  ASSERT_TRUE(broker().SetQuota({"own", kAlice}, std::nullopt).ok());
  EXPECT_TRUE(broker().SetQuota({"own", kBob}, 1).ok());
}

TEST_F(AdministrationTest, NamesAreTakenAwayWhoseverTheyAre) {
  const SessionId alice = Open(kAlice);
  Publish(alice, Arena(alice), "a");
  const ShareKey key{.name = "a"};
  EXPECT_THAT(broker().Withdraw(NamespaceOf{"default", kBob}, {&key, 1}),
              FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_EQ(*broker().Withdraw(NamespaceOf{"", kAlice}, {&key, 1}), 1u);
  EXPECT_THAT(Acquire(alice, {key}), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
}

// In a shared namespace other users see the properties of a share that readers need, but not the maker's process.
TEST_F(AdministrationTest, AShareRowTellsWhoseItIsAndWhatBecomesOfIt) {
  config_.namespaces["team"].withdraw_on_exit = true;
  config_.namespaces["team"].share_lifetime = std::chrono::milliseconds(70'000);
  const SessionId alice = Open(kAlice);
  const SessionId bob = Open(kBob);
  const Handle arena = Arena(bob, kPage, "team");
  ASSERT_TRUE(broker().Publish(bob, Call(arena, "b", 0, 256, "team")).ok());
  const auto seen_by_alice = broker().ListShares(alice, {.page_size = 9});
  const ShareRow& for_alice = seen_by_alice->rows.at(0);
  EXPECT_EQ(for_alice.maker_uid, std::nullopt);
  EXPECT_TRUE(for_alice.goes_with_maker);
  const auto seen_by_bob = broker().ListShares(bob, {.page_size = 9});
  const ShareRow& for_bob = seen_by_bob->rows.at(0);
  EXPECT_EQ(for_bob.maker_uid, kBob);
  const ListFilter all{.everybody = true, .page_size = 9};
  EXPECT_EQ(broker().ListShares(SessionId{}, all)->rows.at(0).maker_uid, kBob);
  const NamespaceRow team = broker().ListNamespaces(alice, all)->rows.at(0);
  EXPECT_TRUE(team.withdraws_on_exit);
  EXPECT_EQ(team.share_lifetime, std::chrono::milliseconds(70'000));
  EXPECT_EQ(team.orphan_grace, std::chrono::milliseconds(60'000));
}

TEST_F(AdministrationTest, ATrimOfADeviceThatIsNotServedSaysSo) {
  EXPECT_TRUE(broker().Trim(kHost).ok());
  EXPECT_TRUE(broker().Trim().ok());
  EXPECT_THAT(broker().Trim(Device{2, 0, "GPU-0"}), FailsWith(Code::kNotFound, "NO_SUCH_DEVICE"));
}

TEST_F(AdministrationTest, ListsAreOfEverybody) {
  const SessionId alice = Open(kAlice);
  Publish(alice, Arena(alice), "a");
  const SessionId bob = Open(kBob);
  const Handle arena = Arena(bob, kPage, "team");
  ASSERT_TRUE(broker().Publish(bob, Call(arena, "b", 0, 256, "team")).ok());
  ASSERT_TRUE(Acquire(alice, {{.name = "b"}}, "team").ok());
  std::vector<std::string> names;
  ListFilter filter{.everybody = true, .page_size = 1};
  do {
    const auto page = broker().ListShares(SessionId{}, filter);
    ASSERT_TRUE(page.ok());
    for (const ShareRow& row : page->rows) names.push_back(row.facts->name);
    filter.page_token = page->next;
  } while (!filter.page_token.empty());
  EXPECT_THAT(names, testing::ElementsAre("a", "b"));
  const ListFilter all{.everybody = true, .page_size = 9};
  EXPECT_EQ(broker().ListSessions(SessionId{}, all)->rows.size(), 2u);
  EXPECT_EQ(broker().ListLeases(SessionId{}, all)->rows.size(), 1u);
  EXPECT_EQ(broker().ListNamespaces(SessionId{}, all)->rows.size(), 2u);
  const auto leased = broker().ListLeases(SessionId{}, all)->rows.at(0);
  EXPECT_EQ(leased.uid, kAlice);
  EXPECT_EQ(leased.device, kHost);
  EXPECT_THAT(broker().ListShares(SessionId{}, {.page_size = 9}), FailsWith(Code::kNotFound, "SESSION_ENDED"));
}

}  // namespace
}  // namespace arraybridge::daemon
