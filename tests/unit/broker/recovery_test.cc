// SPDX-License-Identifier: Apache-2.0
// A broker that ends at any moment is continued by the next one, over real host memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <set>

#include "daemon/broker/tables/journal.h"
#include "daemon/memory/host/host_backend.h"
#include "daemon/memory/shared_pages/record_file.h"
#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/fake_store.h"
#include "tests/unit/broker/hazard_reader.h"

namespace arraybridge::daemon {
namespace {

using testing::SizeIs;

// The lives of a broker. Each one has a copy of the store, so that its end takes nothing out of the store of the next
// one.
class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest() { Start(); }

  // `alive`: the sessions whose clients still have their connection.
  Recovered Start(const std::set<SessionId>& alive = {}) {
    auto passed = store_->PassOn();
    if (broker_ != nullptr) abandoned_.push_back({std::move(store_), std::move(backend_), std::move(broker_)});
    if (!has_catalogues_) abandoned_.clear();
    store_ = std::make_unique<FakeStore>();
    for (const StoredDescriptor& each : passed) {
      const DescriptorStore::Entry entry{each.name, each.fd.get()};
      EXPECT_TRUE(store_->Store({&entry, 1}).ok());
    }
    backend_ = MakeHostBackend({.capacity_bytes = 64 * kPage});
    broker_ = std::make_unique<Broker>(config_, std::vector<MemoryBackend*>{backend_.get()});
    std::vector<LiveClient> clients;
    for (const SessionId session : alive)
      clients.push_back({session, {.uid = uids_.contains(session) ? uids_[session] : 1000}});
    auto recovered = broker_->Recover(*store_, std::move(passed), clients);
    EXPECT_TRUE(recovered.ok()) << recovered.status().ToString();
    return *std::move(recovered);
  }
  Broker& broker() { return *broker_; }
  FakeStore& store() { return *store_; }

  SessionId Open(uint32_t uid = 1000) {
    const SessionId session = broker().OpenSession({.uid = uid, .client = "test"})->session;
    uids_[session] = uid;
    return session;
  }
  Handle Arena(SessionId session, uint64_t pages = 1) {
    auto arena = broker().Allocate(session, {"default", kHost, pages * kPage});
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    return std::move(arena->handle);
  }
  // An arena of one page with these bytes, sealed.
  Handle Filled(SessionId session, unsigned char byte) {
    Handle arena = Arena(session);
    void* const base = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, arena.descriptor.get(), 0);
    std::memset(base, byte, kPage);
    arena.descriptor.reset();
    EXPECT_TRUE(broker().Mapped(session, ArenaId{arena.arena}).ok());
    ::munmap(base, kPage);
    return arena;
  }
  static PublishCall Call(const Handle& arena, std::string_view name, uint64_t offset = 0, uint64_t request = 0) {
    PublishCall call;
    call.ns = "default";
    call.name = name;
    call.arena = ArenaId{arena.arena};
    call.arena_generation = arena.generation;
    call.offset = offset;
    call.size = 256;
    call.description = "what it is";
    call.note = "copied";
    call.replace = true;
    call.request = request;
    return call;
  }
  PublishedShare Publish(SessionId session, const Handle& arena, std::string_view name, uint64_t offset = 0,
                         uint64_t request = 0) {
    auto share = broker().Publish(session, Call(arena, name, offset, request));
    EXPECT_TRUE(share.ok()) << share.status().ToString();
    return *std::move(share);
  }
  Result<AcquiredShares> Acquire(SessionId session, std::string_view name, uint64_t request = 0) {
    const ShareKey key{.name = name};
    return broker().Acquire(session, "default", {&key, 1}, true, false, {}, UINT64_MAX, request);
  }
  Snapshot Now() { return broker().TakeSnapshot(); }
  uint64_t Withdraw(SessionId session, std::string_view name) {
    const ShareKey key{.name = name};
    return broker().Withdraw(session, "default", {&key, 1}).ok() ? 1 : 0;
  }

  const Device kHost{kDeviceCpu, 0, {}};
  Config config_;
  bool has_catalogues_ = false;  // whose destructor would close them for their readers; a killed broker does not

 private:
  struct Abandoned {
    std::unique_ptr<FakeStore> store;
    std::unique_ptr<MemoryBackend> backend;
    std::unique_ptr<Broker> broker;
  };
  std::vector<Abandoned> abandoned_;
  std::map<SessionId, uint32_t> uids_;
  std::unique_ptr<FakeStore> store_ = std::make_unique<FakeStore>();
  std::unique_ptr<MemoryBackend> backend_;
  std::unique_ptr<Broker> broker_;
};

TEST_F(RecoveryTest, ASharesNameGenerationBytesAndChargeComeBack) {
  const auto maker = Open();
  const auto share = Publish(maker, Filled(maker, 0x5A), "a");
  const auto charged = Now().charged_bytes;
  const auto id = broker().broker_id();
  const auto recovered = Start();
  EXPECT_EQ(recovered.life, 2u);
  EXPECT_EQ(recovered.shares, 1u);
  EXPECT_EQ(recovered.lost_shares, 0u);
  EXPECT_EQ(broker().broker_id(), id);
  EXPECT_EQ(Now().charged_bytes, charged);
  const auto acquired = Acquire(Open(), "a");
  ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
  const LeasedShare& leased = acquired->shares.at(0);
  EXPECT_EQ(leased.facts->id, share.share);
  EXPECT_EQ(leased.facts->generation, share.generation);
  EXPECT_EQ(leased.facts->description, "what it is");
  void* const base = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, acquired->descriptor->descriptor.get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  EXPECT_EQ(static_cast<const unsigned char*>(base)[255], 0x5A);
  ::munmap(base, kPage);
}

TEST_F(RecoveryTest, NumbersAreNeverUsedTwice) {
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  const auto first = Publish(maker, arena, "a");
  Withdraw(maker, "a");
  Start();
  const auto next = Open();
  EXPECT_GT(Number(next), Number(maker));
  const auto again = Filled(next, 1);
  EXPECT_GT(again.arena, arena.arena);
  const auto share = Publish(next, again, "a");
  EXPECT_GT(share.generation, first.generation);
  EXPECT_GT(Number(share.share), Number(first.share));
}

TEST_F(RecoveryTest, ALiveSessionKeepsItsTokenLeasesAndArenas) {
  const auto opened = broker().OpenSession({.uid = 1000, .client = "test"});
  const auto session = opened->session;
  const auto arena = Filled(session, 1);
  Publish(session, arena, "a");
  const auto acquired = Acquire(session, "a");
  const uint64_t lease = Number(acquired->shares.at(0).lease);
  EXPECT_THAT(Start({session}).sessions, SizeIs(1));
  EXPECT_EQ(*broker().SessionOf(opened->token), session);
  EXPECT_EQ(broker().PeerOf(session)->client, "test");
  EXPECT_EQ(Now().leases, 1u);
  EXPECT_EQ(Withdraw(session, "a"), 1u);
  EXPECT_EQ(Now().withdrawn_shares, 1u) << "the lease keeps the bytes";
  EXPECT_EQ(*broker().Release(session, {&lease, 1}, {}, {}), 1u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_THAT(broker().TakeReturned(session, 9), SizeIs(1));
  EXPECT_TRUE(broker().Publish(session, Call(arena, "b")).ok()) << "it still writes its arena";
}

TEST_F(RecoveryTest, ASessionWhoseClientHasGoneEnds) {
  const auto maker = Open();
  Publish(maker, Filled(maker, 1), "a");
  ASSERT_TRUE(Acquire(maker, "a").ok());
  Arena(maker);
  EXPECT_THAT(Start().sessions, SizeIs(0));
  EXPECT_EQ(Now().sessions, 0u);
  EXPECT_EQ(Now().leases, 0u);
  while (broker().Sweep(Clock::now()).unfinished) continue;
  EXPECT_EQ(Now().charged_bytes, kPage) << "the arena without a share dies";
  EXPECT_EQ(Withdraw(Open(), "a"), 1u);
  while (broker().Sweep(Clock::now()).unfinished) continue;
  EXPECT_EQ(Now().charged_bytes, 0u);
  EXPECT_EQ(store().usage().entries, 1u) << "the journal";
}

TEST_F(RecoveryTest, ASessionOverGrpcWaitsForItsClient) {
  const SessionId writer = Open();
  Publish(writer, Filled(writer, 7), "a");
  const auto opened = broker().OpenSession({.uid = 1000, .client = "remote", .door = Door::kGrpc});
  ASSERT_TRUE(opened.ok());
  const auto acquired = Acquire(opened->session, "a");
  ASSERT_TRUE(acquired.ok());
  const ArenaId arena{acquired->shares[0].handle.arena};
  const auto ticket = broker().IssueTicket(opened->session, arena, Access::kRead);
  const auto used = broker().IssueTicket(opened->session, arena, Access::kRead);
  ASSERT_TRUE(broker().Redeem(opened->session, *used).ok());

  const Recovered recovered = Start({writer});
  EXPECT_THAT(recovered.awaited, testing::ElementsAre(opened->session));
  EXPECT_THAT(recovered.sessions, testing::ElementsAre(writer));
  EXPECT_EQ(Now().leases, 1u);
  EXPECT_EQ(broker().ContinueSession(opened->token, {.uid = 1001}).status().code(), Code::kNotFound);
  const auto continued = broker().ContinueSession(opened->token, {.uid = 1000, .door = Door::kGrpc});
  ASSERT_TRUE(continued.ok());
  EXPECT_EQ(continued->session, opened->session);
  EXPECT_FALSE(broker().ContinueSession(opened->token, {.uid = 1000}).ok()) << "it has its client";
  EXPECT_FALSE(broker().StopAwaiting(opened->session));
  EXPECT_FALSE(broker().Redeem(opened->session, *used).ok()) << "once is once";
  EXPECT_TRUE(broker().Redeem(opened->session, *ticket).ok());
  broker().EndSession(opened->session);

  EXPECT_THAT(Start({writer}).awaited, testing::IsEmpty());
}

TEST_F(RecoveryTest, ASessionOverGrpcWithoutItsClientEnds) {
  const auto opened = broker().OpenSession({.uid = 1000, .client = "remote", .door = Door::kGrpc});
  Start();
  EXPECT_TRUE(broker().StopAwaiting(opened->session));
  EXPECT_FALSE(broker().ContinueSession(opened->token, {.uid = 1000}).ok());
}

TEST_F(RecoveryTest, ASessionThatCameByAFormerDoorEnds) {
  const auto opened = broker().OpenSession({.uid = 1000, .client = "remote", .door = Door{3}});  // TCP, in 0.1
  EXPECT_THAT(Start().awaited, testing::IsEmpty());
  EXPECT_EQ(broker().SessionOf(opened->token).status().code(), Code::kNotFound);
}

TEST_F(RecoveryTest, TheLastPublishOfANameKeepsIt) {
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  Publish(maker, arena, "a", 0);
  const auto last = Publish(maker, arena, "a", 1024);
  Start({maker});
  EXPECT_EQ(Acquire(maker, "a")->shares.at(0).facts->generation, last.generation);
  EXPECT_THAT(broker().TakeReturned(maker, 9), SizeIs(1)) << "the range of the first";
}

TEST_F(RecoveryTest, AHazardSlotKeepsTheBytesAcrossTheDeath) {
  has_catalogues_ = true;
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  Publish(maker, arena, "a");
  Reader reader(broker(), Open());
  const uint64_t lease = Number(Acquire(maker, "a")->shares.at(0).lease);  // inserts the share
  ASSERT_TRUE(reader.Hold("a"));
  EXPECT_EQ(*broker().Release(maker, {&lease, 1}, {}, {}), 1u);
  ASSERT_TRUE(broker().HazardPageMapped(reader.session, "default").ok());
  Start({maker, reader.session});
  EXPECT_TRUE(reader.Find("a")) << "the client's mapping shows what the next broker writes";
  EXPECT_EQ(Withdraw(maker, "a"), 1u);
  EXPECT_FALSE(reader.Find("a"));
  EXPECT_TRUE(broker().hazards_waiting());
  Start({maker, reader.session});
  EXPECT_EQ(Now().withdrawn_shares, 1u);
  EXPECT_EQ(broker().PollHazards().freed, 0u);
  reader.Clear();
  EXPECT_EQ(broker().PollHazards().freed, 1u);
  Publish(maker, arena, "b");
  EXPECT_TRUE(reader.Hold("b"));
}

TEST_F(RecoveryTest, AnUnansweredPublishIsNotServedTwice) {
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  const auto share = Publish(maker, arena, "a", 0, 77);
  Start({maker});
  const auto again = broker().TakeBackUnanswered(maker, 77);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->generation, share.generation);
  EXPECT_EQ(Publish(maker, arena, "a", 0, 77).generation, share.generation) << "also from the queue";
  EXPECT_FALSE(broker().TakeBackUnanswered(maker, 78).has_value());
  broker().Resumed(maker);
  EXPECT_FALSE(broker().TakeBackUnanswered(maker, 77).has_value());
}

TEST_F(RecoveryTest, WhatAnUnansweredRequestWasGrantedIsTakenBack) {
  const auto maker = Open();
  Publish(maker, Filled(maker, 1), "a");
  ASSERT_TRUE(Acquire(maker, "a", 5).ok());
  ASSERT_TRUE(Acquire(maker, "a", 6).ok());
  ASSERT_TRUE(broker().Allocate(maker, {"default", kHost, kPage, {}, 7}).ok());
  Start({maker});
  EXPECT_EQ(Now().leases, 2u);
  EXPECT_FALSE(broker().TakeBackUnanswered(maker, 5).has_value());
  EXPECT_EQ(Now().leases, 1u);
  EXPECT_FALSE(broker().TakeBackUnanswered(maker, 7).has_value());
  while (broker().Sweep(Clock::now()).unfinished) continue;
  EXPECT_EQ(Now().charged_bytes, kPage);
}

TEST_F(RecoveryTest, LifetimesAndGraceEndWhenTheyWouldHaveEnded) {
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  auto call = Call(arena, "short");
  call.lifetime = std::chrono::seconds(60);
  ASSERT_TRUE(broker().Publish(maker, call).ok());
  ASSERT_TRUE(broker().Publish(maker, Call(arena, "", 1024)).ok());  // unnamed: an orphan without its maker
  Start();
  EXPECT_EQ(Now().shares, 2u);
  broker().Sweep(Clock::now() + std::chrono::seconds(61));
  EXPECT_EQ(Now().shares, 0u);
}

TEST_F(RecoveryTest, ASetQuotaStays) {
  ASSERT_TRUE(broker().SetQuota({"default", 1000}, 3 * kPage).ok());
  Start();
  EXPECT_EQ(broker().QuotaOf({"default", 1000})->quota_bytes, 3 * kPage);
  ASSERT_TRUE(broker().SetQuota({"default", 1000}, std::nullopt).ok());
  Start();
  EXPECT_FALSE(broker().QuotaOf({"default", 1000})->set);
}

TEST_F(RecoveryTest, AShareWithoutItsMemoryIsReportedLost) {
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  Publish(maker, arena, "a");
  Publish(maker, Filled(maker, 2), "b");
  store().Drop(StoredName(kStoredArena, arena.arena));
  const auto recovered = Start();
  EXPECT_EQ(recovered.shares, 1u);
  ASSERT_THAT(recovered.lost, SizeIs(1));
  EXPECT_EQ(recovered.lost[0].share, "a");
  EXPECT_EQ(recovered.lost[0].ns, "default");
  EXPECT_EQ(recovered.lost[0].ns_uid, 1000u);
  EXPECT_THAT(recovered.lost[0].why, testing::HasSubstr("memfd memory ends with the daemon"));
  EXPECT_TRUE(Acquire(Open(), "b").ok());
  const auto later = Start();
  EXPECT_EQ(later.lost_shares, 0u);
  EXPECT_EQ(later.lost_shares_total, 1u);
}

TEST_F(RecoveryTest, AFullStoreRefusesWhatCouldNotBeRecovered) {
  const auto maker = Open();
  store().full = true;
  EXPECT_THAT(broker().Allocate(maker, {"default", kHost, kPage}), FailsWith(Code::kResourceExhausted, "STORE_FULL"));
  EXPECT_EQ(Now().charged_bytes, 0u);
  store().full = false;
  EXPECT_TRUE(broker().Allocate(maker, {"default", kHost, kPage}).ok());
}

// No user has more than it leaves, so that there is always room for another one.
TEST_F(RecoveryTest, OneUserLeavesTheStoreToOthers) {
  store().entries_max = 128;
  const auto refused = [](const auto& result) {
    if (result.ok()) return false;
    EXPECT_THAT(result, FailsWith(Code::kResourceExhausted, "TOO_MANY_DESCRIPTORS"));
    return true;
  };
  const auto fill = [&](SessionId session) {
    uint64_t arenas = 0;
    while (!refused(broker().Allocate(session, {"default", kHost, kPage / 4}))) ++arenas;
    return arenas;
  };
  const auto greedy = Open();
  const uint64_t taken = fill(greedy);
  EXPECT_GT(taken, 24u);
  EXPECT_LE(taken, 33u) << "half of what is not kept for sessions";
  EXPECT_TRUE(refused(broker().OpenQueueOf(greedy, "")));
  const UniqueFd lifeline(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  uint64_t sessions = 0;
  for (;; ++sessions) {  // for which arenas do not count
    const auto opened = broker().OpenSession({.uid = 1000, .client = "test"});
    if (refused(opened)) break;
    ASSERT_TRUE(broker().StoreLifeline(opened->session, lifeline.get()).ok());
  }
  EXPECT_GT(sessions, 24u);
  for (uint32_t uid = 1001; uid < 1004; ++uid) {
    const auto other = Open(uid);
    EXPECT_TRUE(broker().StoreLifeline(other, lifeline.get()).ok());
  }
  EXPECT_TRUE(broker().Allocate(Open(0), {"default", kHost, kPage}).ok()) << "root";
  EXPECT_LT(store().usage().entries, 120u);
  Start({greedy});
  store().entries_max = 64;
  EXPECT_EQ(fill(greedy), 0u) << "the next daemon counts on";
}

TEST_F(RecoveryTest, WhatAUserKeptFromOthersBeforeIsCounted) {
  using Who = AccessEntry::Who;
  config_.namespaces["default"] = {
      .quota_bytes = 8 * kPage,
      .access = {{Who::kUser, 1000, {}, Right::kWrite}, {Who::kUser, 1001, {}, Right::kRead}}};
  Start();
  const auto maker = Open();
  const auto reader = Open(1001);
  const auto get = [&](unsigned char byte) {
    auto call = Call(Filled(maker, byte), "frame");
    call.size = kPage;
    EXPECT_TRUE(broker().Publish(maker, call).ok());
    return Acquire(reader, "frame").status();
  };
  for (unsigned char byte = 1; byte <= 4; ++byte) EXPECT_TRUE(get(byte).ok());
  Withdraw(maker, "frame");
  Start({maker, reader});
  EXPECT_THAT(get(5), FailsWith(Code::kResourceExhausted, "PINNED_BYTES")) << "it has half of eight pages";
}

TEST_F(RecoveryTest, WhatWasRefusedBecauseTheHolderIsBusyIsNotKept) {
  const SessionId writer = Open();
  const auto before = store().usage().entries;
  store().busy = true;
  EXPECT_EQ(broker().Allocate(writer, {"default", kHost, kPage}).status().code(), Code::kUnavailable);
  EXPECT_EQ(store().usage().entries, before);
}

TEST_F(RecoveryTest, ManyLivesLeaveNothingBehind) {
  const auto maker = Open();
  const auto arena = Filled(maker, 1);
  for (int life = 0; life < 20; ++life) {
    for (int i = 0; i < 10; ++i) Publish(maker, arena, "a", static_cast<uint64_t>(i % 2) * 1024);
    static_cast<void>(broker().TakeReturned(maker, 99));
    Start({maker});
  }
  EXPECT_EQ(Now().shares, 1u);
  EXPECT_EQ(Now().withdrawn_shares, 0u);
  EXPECT_EQ(Now().charged_bytes, kPage);
  EXPECT_EQ(store().usage().entries, 2u) << "the journal and one arena";
}

TEST_F(RecoveryTest, ClaimsAreLostAndTheirHoldersRenewThemFirst) {
  const SessionId holder = Open();
  const SessionId waits = Open();
  const uint64_t claim = *broker().ClaimName(holder, "default", {.name = "m"}, {});
  EXPECT_NE(claim, 0u);
  Start({holder, waits});
  const auto claimed = FailsWith(Code::kNotFound, "NAME_CLAIMED");
  EXPECT_THAT(broker().ClaimName(waits, "default", {.name = "m"}, {}), claimed) << "the holder may come";
  EXPECT_GT(*broker().ClaimName(holder, "default", {.name = "m"}, {}, claim), claim);
  EXPECT_THAT(broker().ClaimName(waits, "default", {.name = "m"}, {}), claimed);
  broker().EndSession(holder);
  Start();
  EXPECT_NE(*broker().ClaimName(Open(), "default", {.name = "m"}, {}), 0u) << "no session of the last daemon is left";
}

}  // namespace
}  // namespace arraybridge::daemon
