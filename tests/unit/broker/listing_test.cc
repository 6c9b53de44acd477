// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

class ListingTest : public BrokerTest {
 protected:
  // Returns the rows of all pages; fails if a page exceeds the requested size.
  template <class List>
  auto All(List list, ListFilter filter) {
    auto page = list(filter);
    auto rows = std::move(page->rows);
    while (!page->next.empty()) {
      EXPECT_EQ(rows.size() % filter.page_size, 0u);
      filter.page_token = page->next;
      page = list(filter);
      EXPECT_TRUE(page.ok()) << page.status().ToString();
      EXPECT_LE(page->rows.size(), filter.page_size);
      std::ranges::move(page->rows, std::back_inserter(rows));
    }
    return rows;
  }
  std::vector<std::string> Names(SessionId session, const ListFilter& filter) {
    std::vector<std::string> names;
    for (const ShareRow& row : All([&](const auto& f) { return broker().ListShares(session, f); }, filter)) {
      names.push_back(row.facts->name);
    }
    return names;
  }
};

TEST_F(ListingTest, SharesComeInPagesOfTheCallersUid) {
  const auto one = Open(1);
  const auto two = Open(2);
  const auto x = Arena(one, kPage, "x");
  const auto y = Arena(one, kPage, "y:0");
  for (const auto& [arena, ns, name, offset] :
       {std::tuple{&y, "y:0", "c", 0}, {&x, "x", "a1", 0}, {&x, "x", "a2", 256}, {&x, "x", "b", 512}}) {
    ASSERT_TRUE(broker().Publish(one, Call(*arena, name, offset, 256, ns)).ok());
  }
  Publish(two, Arena(two), "secret");
  using testing::ElementsAre;
  for (const size_t page_size : {1u, 2u, 3u, 9u}) {
    EXPECT_THAT(Names(one, {.page_size = page_size}), ElementsAre("a1", "a2", "b", "c"));
  }
  EXPECT_THAT(Names(one, {.name_prefix = "a", .page_size = 1}), ElementsAre("a1", "a2"));
  EXPECT_THAT(Names(one, {.ns = "y:0", .page_size = 1}), ElementsAre("c"));
  EXPECT_THAT(Names(one, {.session = two, .page_size = 1}), ElementsAre());
  EXPECT_THAT(Names(two, {.page_size = 9}), ElementsAre("secret"));
}

// A page is a bounded amount of work, however many rows exist and however few match.
TEST_F(ListingTest, APageLooksAtSoManyRowsAndNoMore) {
  const auto session = Open();
  const auto arena = Arena(session, 600 * kPage);
  constexpr uint64_t kShares = 2500;
  for (uint64_t i = 0; i < kShares; ++i) Publish(session, arena, Concat(i == kShares - 1 ? "b" : "a", i), 256 * i);
  for (uint64_t i = 0; i < kShares; ++i) Lease(session, Concat(i == kShares - 1 ? "b" : "a", i));
  const auto pages = [&](auto list) {
    ListFilter filter{.name_prefix = "b", .page_size = 512};
    std::vector<size_t> rows;
    do {
      auto page = list(filter);
      EXPECT_TRUE(page.ok()) << page.status().ToString();
      rows.push_back(page->rows.size());
      filter.page_token = page->next;
    } while (!filter.page_token.empty());
    return rows;
  };
  using testing::ElementsAre;
  EXPECT_THAT(pages([&](const auto& f) { return broker().ListShares(session, f); }), ElementsAre(0, 0, 1));
  EXPECT_THAT(pages([&](const auto& f) { return broker().ListLeases(session, f); }), ElementsAre(0, 0, 1));
}

TEST_F(ListingTest, AShareRowTellsItsMakerWhileThatLives) {
  const auto maker = Open();
  const auto reader = Open();
  const auto arena = Arena(maker);
  Publish(maker, arena, "a", 256, 300);
  Lease(reader, "a");
  const auto page = broker().ListShares(reader, {.page_size = 1});
  const ShareRow& row = page->rows.at(0);
  EXPECT_EQ(row.maker, maker);
  EXPECT_EQ(row.leases, 1u);
  EXPECT_EQ(row.handle.offset, 256u);
  EXPECT_EQ(row.handle.size, 300u);
  EXPECT_EQ(row.immutability, Immutability::kByContract);
  EXPECT_EQ(row.maker_uid, 1000u);
  EXPECT_FALSE(row.goes_with_maker);
  broker().EndSession(maker);
  EXPECT_EQ(broker().ListShares(reader, {.page_size = 1})->rows.at(0).maker, SessionId{});
  ASSERT_TRUE(Withdraw(reader, {{.name = "a"}}).ok());
  EXPECT_TRUE(broker().ListShares(reader, {.page_size = 1})->rows.empty());
}

TEST_F(ListingTest, SessionsOfTheSameUidWithWhatTheyHave) {
  const auto one = Open(1);
  Open(2);
  const auto three = Open(1);
  const auto arena = Arena(one, 2 * kPage);
  Publish(one, arena, "a");
  Lease(one, "a");
  for (const size_t page_size : {1u, 2u}) {
    const auto rows = All([&](const auto& f) { return broker().ListSessions(three, f); }, {.page_size = page_size});
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].session, one);
    EXPECT_EQ(rows[0].client, "test");
    EXPECT_EQ(rows[0].leases, 1u);
    EXPECT_EQ(rows[0].arenas, 1u);
    EXPECT_EQ(rows[0].arena_bytes, 2 * kPage);
    EXPECT_EQ(rows[1].session, three);
  }
  EXPECT_EQ(broker().ListSessions(three, {.session = one, .page_size = 9})->rows.size(), 1u);
}

TEST_F(ListingTest, LeasesOfTheSameUid) {
  const auto one = Open(1);
  const auto two = Open(1);
  const auto arena = Arena(one);
  Publish(one, arena, "a");
  std::vector<LeaseId> leases;
  for (const SessionId session : {one, one, two, two, two}) leases.push_back(Lease(session, "a"));
  for (const size_t page_size : {1u, 2u, 3u, 5u}) {
    const auto rows = All([&](const auto& f) { return broker().ListLeases(two, f); }, {.page_size = page_size});
    ASSERT_EQ(rows.size(), 5u);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(rows[i].lease, leases[i]);
    EXPECT_EQ(rows[4].session, two);
    EXPECT_EQ(rows[4].size, 256u);
  }
  EXPECT_EQ(broker().ListLeases(two, {.session = one, .page_size = 9})->rows.size(), 2u);
  EXPECT_TRUE(broker().ListLeases(Open(2), {.page_size = 9})->rows.empty());
}

TEST_F(ListingTest, NamespacesWithTheirNumbers) {
  config_.namespace_quota_bytes = 10 * kPage;
  const auto session = Open(1);
  const auto arena = Arena(session, kPage, "b");
  Arena(session, 2 * kPage, "a");
  Arena(session, kPage, "c");
  Arena(Open(2), kPage, "hidden");
  ASSERT_TRUE(broker().Publish(session, Call(arena, "s", 0, 300, "b")).ok());
  for (const size_t page_size : {1u, 2u, 3u}) {
    const auto rows = All([&](const auto& f) { return broker().ListNamespaces(session, f); }, {.page_size = page_size});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].ns, "a");
    EXPECT_EQ(rows[0].charged_bytes, 2 * kPage);
    EXPECT_EQ(rows[0].quota_bytes, 10 * kPage);
    EXPECT_EQ(rows[1].ns, "b");
    EXPECT_EQ(rows[1].uid, 1u);
    EXPECT_EQ(rows[1].shares, 1u);
    EXPECT_EQ(rows[1].share_bytes, 300u);
  }
  EXPECT_EQ(broker().ListNamespaces(session, {.ns = "c", .page_size = 9})->rows.size(), 1u);
}

TEST_F(ListingTest, ChannelsWithTheirEndsAndWhatWaits) {
  const auto maker = Open(1);
  const auto reader = Open(1);
  const auto arena = Arena(maker, kPage, "a");
  const auto open = [&](SessionId session, const char* ns, const char* name, ChannelRole role, uint64_t capacity) {
    return broker().OpenChannel(session, {ns, name, role, {capacity}})->end;
  };
  const auto sends = open(maker, "a", "2/x:y", ChannelRole::kSender, 4);
  open(maker, "a", "2/x:y", ChannelRole::kSender, 0);
  const auto receives = open(reader, "a", "2/x:y", ChannelRole::kReceiver, 0);
  open(maker, "a", "1", ChannelRole::kSender, 0);
  open(maker, "b/c", "1", ChannelRole::kReceiver, 0);
  open(Open(2), "a", "hidden", ChannelRole::kSender, 0);
  for (const uint64_t offset : {0u, 1024u}) {
    auto call = Call(arena, "", offset, 300, "a");
    call.channel = sends;
    ASSERT_TRUE(broker().Publish(maker, call).ok());
  }
  const auto list = [&](const auto& filter) { return broker().ListChannels(maker, filter); };
  for (const size_t page_size : {1u, 2u, 9u}) {
    const auto rows = All(list, {.page_size = page_size});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].name, "1");
    EXPECT_EQ(rows[0].capacity, kChannelCapacityDefault);
    EXPECT_EQ(rows[1].ns, "a");
    EXPECT_EQ(rows[1].name, "2/x:y");
    EXPECT_EQ(rows[1].uid, 1u);
    EXPECT_EQ(rows[1].capacity, 4u);
    EXPECT_EQ(rows[1].queued, 2u);
    EXPECT_EQ(rows[1].queued_bytes, 600u);
    EXPECT_EQ(rows[1].senders, 2u);
    EXPECT_EQ(rows[1].receivers, 1u);
    EXPECT_FALSE(rows[1].direct);
    EXPECT_EQ(rows[2].ns, "b/c");
    EXPECT_EQ(rows[2].receivers, 1u);
  }
  ASSERT_TRUE(broker().Receive(reader, receives, 0, true).ok());
  EXPECT_EQ(All(list, {.ns = "a", .name_prefix = "2", .page_size = 9}).at(0).queued_bytes, 300u);
  EXPECT_TRUE(All(list, {.ns = "b", .page_size = 9}).empty());
  EXPECT_EQ(broker().ListChannels({}, {.everybody = true, .page_size = 9})->rows.size(), 4u);
}

TEST_F(ListingTest, ATokenOfNobodyIsRefused) {
  const auto session = Open();
  const auto bad = FailsWith(Code::kInvalidArgument, "BAD_PAGE_TOKEN");
  for (const char* token : {"x", "12", ":", "-1:", "99999999999999999999:"}) {
    EXPECT_THAT(broker().ListShares(session, {.page_size = 1, .page_token = token}), bad);
    EXPECT_THAT(broker().ListSessions(session, {.page_size = 1, .page_token = token}), bad);
    EXPECT_THAT(broker().ListLeases(session, {.page_size = 1, .page_token = token}), bad);
    EXPECT_THAT(broker().ListNamespaces(session, {.page_size = 1, .page_token = token}), bad);
  }
  for (const char* token : {"x", "12", "-1:", "99999999999999999999:", "4294967297:", "1:x", "1:x/", "1:2/a", "1:/"}) {
    EXPECT_THAT(broker().ListChannels(session, {.page_size = 1, .page_token = token}), bad) << token;
  }
  EXPECT_THAT(broker().ListLeases(session, {.page_size = 1, .page_token = "1:x"}), bad);
}

TEST_F(ListingTest, TotalsCount) {
  const auto session = Open();
  const auto arena = Arena(session);
  Publish(session, arena, "a");
  Lease(session, "a");
  const Snapshot now = Now();
  EXPECT_EQ(now.sessions, 1u);
  EXPECT_EQ(now.sessions_total, 1u);
  EXPECT_EQ(now.publishes_total, 1u);
  EXPECT_EQ(now.acquires_total, 1u);
  EXPECT_EQ(now.leases, 1u);
}

}  // namespace
}  // namespace arraybridge::daemon
