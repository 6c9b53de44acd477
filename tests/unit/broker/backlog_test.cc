// SPDX-License-Identifier: Apache-2.0
// The broker does little work with the lock held once, even if one user has very much.
#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/hazard_reader.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kStepsAtOnce = 64;  // as in ended_sessions.h
constexpr uint64_t kManyShares = 3 * kStepsAtOnce;
constexpr std::chrono::hours kLater{1};

class BacklogTest : public BrokerTest {
 protected:
  BacklogTest() {
    config_.limits.sessions_per_uid = 1024;
    config_.limits.pinned_bytes_per_session = 1 << 30;
    config_.limits.descriptors_per_uid = 1 << 20;
  }
  // Publishes shares in one arena, with names of their own or without names.
  Handle PublishMany(SessionId maker, uint64_t count, bool named, std::string_view ns = "default") {
    const Handle arena = Arena(maker, count * 256, ns);
    for (uint64_t i = 0; i < count; ++i) {
      const std::string name = named ? Concat("s", i) : std::string();
      EXPECT_TRUE(broker().Publish(maker, Call(arena, name, i * 256, 256, ns)).ok());
    }
    return Describe(arena);
  }
  static Handle Describe(const Handle& arena) {
    Handle copy;
    copy.arena = arena.arena;
    copy.generation = arena.generation;
    return copy;
  }
  // Runs slices until nothing is due.
  uint64_t GoOn(Clock::time_point now) {
    uint64_t slices = 1;
    while (broker().SweepOn(now).unfinished) ++slices;
    return slices;
  }
  void WithdrawMany(SessionId session, uint64_t count, std::string_view ns = "default") {
    for (uint64_t i = 0; i < count; ++i) {
      const std::string name = Concat("s", i);
      ASSERT_TRUE(Withdraw(session, {{.name = name}}, ns).ok());
    }
  }
};

TEST_F(BacklogTest, OrphansGoAFewAtATime) {
  config_.orphan_grace = std::chrono::minutes(1);
  const auto maker = Open();
  PublishMany(maker, kManyShares, false);
  broker().EndSession(maker);
  EXPECT_TRUE(Sweep().unfinished) << "the sweep has not found all orphans yet";
  GoOn(Clock::now());
  EXPECT_EQ(Now().shares, kManyShares) << "their grace has not ended";
  const auto swept = Sweep(Clock::now() + kLater);
  EXPECT_TRUE(swept.unfinished);
  EXPECT_EQ(Now().shares, kManyShares - kStepsAtOnce);
  EXPECT_GE(GoOn(Clock::now() + kLater), 2u);
  EXPECT_EQ(Now().shares, 0u);
  Sweep();
  EXPECT_EQ(Now().charged_bytes, 0u);
}

// The sweep finds due orphans by time, without a look at all of them.
TEST_F(BacklogTest, ASweepSaysWhenTheNextOrphanIsDue) {
  config_.orphan_grace = std::chrono::minutes(1);
  const auto maker = Open();
  Publish(maker, Arena(maker), "");
  const auto before = Clock::now();
  broker().EndSession(maker);
  const auto swept = Sweep();
  ASSERT_TRUE(swept.next.has_value());
  EXPECT_GE(*swept.next, before + std::chrono::minutes(1));
  EXPECT_LE(*swept.next, Clock::now() + std::chrono::minutes(1));
}

TEST_F(BacklogTest, SharesThatExpireTogetherGoAFewAtATime) {
  config_.share_lifetime = std::chrono::minutes(1);
  const auto maker = Open();
  PublishMany(maker, kManyShares, true);
  EXPECT_TRUE(Sweep(Clock::now() + kLater).unfinished);
  EXPECT_EQ(Now().shares, kManyShares - kStepsAtOnce);
  GoOn(Clock::now() + kLater);
  EXPECT_EQ(Now().shares, 0u);
}

TEST_F(BacklogTest, ASessionWithMuchIsClearedInSlices) {
  const auto maker = Open();
  PublishMany(maker, kManyShares, true);
  const auto reader = Open();
  for (uint64_t i = 0; i < kManyShares; ++i) Lease(reader, Concat("s", i));
  broker().EndSession(reader);
  EXPECT_EQ(Now().sessions, 1u);
  EXPECT_GE(Now().leases, kManyShares - kStepsAtOnce);
  EXPECT_TRUE(broker().sweep_wanted());
  EXPECT_TRUE(Sweep().unfinished);
  GoOn(Clock::now());
  EXPECT_EQ(Now().leases, 0u);
  WithdrawMany(maker, kManyShares);
  EXPECT_EQ(broker().TakeReturned(maker, kManyShares + 1).size(), kManyShares);
}

TEST_F(BacklogTest, ASmallSessionDoesNotWaitForALargeOne) {
  const auto maker = Open();
  PublishMany(maker, kManyShares, true);
  const auto large = Open();
  for (uint64_t i = 0; i < kManyShares; ++i) Lease(large, Concat("s", i));
  const auto small = Open(1001);
  const auto arena = Arena(small);
  broker().EndSession(large);
  broker().EndSession(small);
  EXPECT_EQ(Sweep().freed_bytes, kPage) << "the small session is cleared already";
  EXPECT_GT(Now().leases, 0u);
  GoOn(Clock::now());
}

TEST_F(BacklogTest, AQueueThatNobodyReceivesGoesAFewAtATime) {
  config_.limits.channel_capacity_max = kManyShares;
  const auto sender = Open();
  const auto receiver = Open();
  const auto sends = broker().OpenChannel(sender, {"default", "c", ChannelRole::kSender, {kManyShares}});
  const auto receives = broker().OpenChannel(receiver, {"default", "c", ChannelRole::kReceiver, {kManyShares}});
  ASSERT_TRUE(sends.ok() && receives.ok());
  const auto arena = Arena(sender, kManyShares * 256);
  for (uint64_t i = 0; i < kManyShares; ++i) {
    auto call = Call(arena, "", i * 256);
    call.channel = sends->end;
    ASSERT_TRUE(broker().Publish(sender, call).ok());
  }
  EXPECT_EQ(Now().queued_shares, kManyShares);
  ASSERT_TRUE(broker().CloseChannel(receiver, receives->end, EndedHow::kClosed).ok());
  EXPECT_EQ(Now().queued_shares, 0u) << "no process wants them";
  EXPECT_LT(broker().TakeReturned(sender, kManyShares).size(), kManyShares) << "the other bytes return later";
  Sweep();
  GoOn(Clock::now());
  EXPECT_EQ(Now().withdrawn_shares, 0u);
}

// One user fills pages and leaves shares waiting; another user's bytes return with the next look nevertheless.
TEST_F(BacklogTest, LooksAreMadeForOneUserAfterAnother) {
  const auto greedy = Open(1001);
  const auto arena = Arena(greedy, kManyShares * 256);
  std::vector<std::unique_ptr<Reader>> readers;
  readers.push_back(std::make_unique<Reader>(broker(), greedy));
  for (uint64_t i = 0; i < kManyShares; ++i) {
    EXPECT_TRUE(broker().Publish(greedy, Call(arena, Concat("s", i), i * 256)).ok());
  }
  for (int i = 0; i < 200; ++i) {
    readers.push_back(std::make_unique<Reader>(broker(), Open(1001)));
    readers.back()->page().high = hazard::kWords;
    for (uint32_t word = 0; word < hazard::kWords; ++word) {
      readers.back()->page().words[word] = hazard::WordOf(word, 1);
    }
  }
  WithdrawMany(greedy, kManyShares);
  EXPECT_TRUE(broker().hazards_waiting());

  const auto maker = Open(1000);
  const auto own = Arena(maker);
  Reader reader(broker(), maker);
  Publish(maker, own, "a");
  ASSERT_TRUE(reader.Hold("a"));
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  EXPECT_TRUE(broker().TakeReturned(maker, 9).empty());
  reader.Clear();
  broker().PollHazards();
  EXPECT_EQ(broker().TakeReturned(maker, 9).size(), 1u);
}

// A session that reports the end of its holds again and again gets its namespace looked at in turn with the user's
// other namespaces.
TEST_F(BacklogTest, LooksAreMadeForOneNamespaceAfterAnother) {
  // In whatever order the broker keeps the namespaces, some of the others come after the greedy one.
  std::vector<SessionId> others;
  const auto wait_for_a_hold = [&](int first) {
    for (int i = first; i < first + 8; ++i) {
      const std::string ns = Concat("other", i);
      others.push_back(Open());
      const auto own = Arena(others.back(), 4096, ns);
      Reader reader(broker(), others.back(), ns);
      ASSERT_TRUE(broker().Publish(others.back(), Call(own, "a", 0, 256, ns)).ok());
      ASSERT_TRUE(reader.Hold("a"));
      ASSERT_TRUE(Withdraw(others.back(), {{.name = "a"}}, ns).ok());
      reader.Clear();
    }
  };
  wait_for_a_hold(0);
  const auto greedy = Open();
  const auto arena = Arena(greedy, kManyShares * 256, "greedy");
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 200; ++i) readers.push_back(std::make_unique<Reader>(broker(), Open(), "greedy"));
  for (uint64_t i = 0; i < kManyShares; ++i) {
    EXPECT_TRUE(broker().Publish(greedy, Call(arena, Concat("s", i), i * 256, 256, "greedy")).ok());
  }
  for (size_t i = 1; i < readers.size(); ++i) {
    readers[i]->page().high = hazard::kWords;
    for (uint32_t word = 0; word < hazard::kWords; ++word) readers[i]->page().words[word] = hazard::WordOf(word, 1);
  }
  EXPECT_TRUE(readers.front()->Hold("s0"));
  WithdrawMany(greedy, kManyShares, "greedy");
  wait_for_a_hold(8);

  broker().PollHazards();
  uint64_t freed = 0;
  for (int turn = 0; turn < 2000 && freed < others.size(); ++turn) {
    broker().HazardCleared(readers.front()->session);
    broker().LookOn();
    for (const SessionId other : others) freed += broker().TakeReturned(other, 9).size();
    ::usleep(1000);  // the budget of looks grows meanwhile
  }
  EXPECT_EQ(freed, others.size());
}

// The look for all ended sessions is made once; its cost does not grow with their number.
TEST_F(BacklogTest, SessionsThatEndAtOnceAreLookedForOnce) {
  const auto maker = Open();
  const auto arena = Arena(maker, uint64_t{hazard::kWords} * 256);
  std::vector<std::unique_ptr<Reader>> readers;
  readers.push_back(std::make_unique<Reader>(broker(), maker));
  for (uint64_t i = 0; i < hazard::kWords; ++i) Publish(maker, arena, Concat("s", i), i * 256);
  for (int i = 0; i < 100; ++i) {
    readers.push_back(std::make_unique<Reader>(broker(), Open()));
    for (uint32_t word = 0; word < hazard::kWords; ++word) ASSERT_TRUE(readers.back()->Hold(Concat("s", word), word));
  }
  WithdrawMany(maker, hazard::kWords);
  EXPECT_EQ(broker().PollHazards().freed, 0u);
  for (size_t i = 1; i < readers.size(); ++i) broker().EndSession(readers[i]->session);
  broker().PollHazards();
  while (broker().hazards_waiting()) broker().LookOn();
  EXPECT_EQ(broker().TakeReturned(maker, hazard::kWords + 1).size(), hazard::kWords);
  EXPECT_EQ(Now().pinned_bytes, 0u);
}

// A session's report covers only the namespaces in which it reads, and costs other users no look.
TEST_F(BacklogTest, AHintIsForTheSessionsOwnNamespaces) {
  const auto maker = Open(1000);
  const auto arena = Arena(maker);
  Reader reader(broker(), maker);
  Publish(maker, arena, "a");
  ASSERT_TRUE(reader.Hold("a"));
  ASSERT_TRUE(Withdraw(maker, {{.name = "a"}}).ok());
  EXPECT_FALSE(broker().HazardCleared(Open(1001)));
  EXPECT_FALSE(broker().HazardCleared(Open(1000)));
  reader.Clear();
  EXPECT_TRUE(broker().HazardCleared(reader.session));
  EXPECT_EQ(broker().LookOn().freed, 1u);
  EXPECT_FALSE(broker().HazardCleared(reader.session)) << "no share waits any more";
}

// The look that finds the hold ended must not withdraw a leased orphan. (HazardsTest has an orphan without a lease.)
TEST_F(BacklogTest, AnOrphanThatIsLeasedWhenItsHoldEndsGoesWithTheLease) {
  config_.orphan_grace = std::chrono::minutes(1);
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader reader(broker(), Open());
  const auto share = Publish(maker, arena, "");
  ASSERT_TRUE(reader.Hold(share.name));
  broker().EndSession(maker);
  Sweep(Clock::now() + kLater);
  EXPECT_EQ(Now().pinned_bytes, 0u) << "it has its name";
  const auto lease = Lease(reader.session, share.name);
  reader.Clear();
  broker().PollHazards();
  EXPECT_EQ(Now().shares, 1u) << "leased";
  EXPECT_FALSE(broker().hazards_waiting());
  Release(reader.session, lease);
  EXPECT_TRUE(broker().sweep_wanted());
  Sweep(Clock::now() + kLater);
  EXPECT_EQ(Now().shares, 0u);
}

TEST_F(BacklogTest, AnOrphanThatWaitsMayBeWithdrawn) {
  config_.orphan_grace = std::chrono::minutes(1);
  const auto maker = Open();
  const auto arena = Arena(maker);
  Reader reader(broker(), Open());
  const auto share = Publish(maker, arena, "");
  ASSERT_TRUE(reader.Hold(share.name));
  broker().EndSession(maker);
  Sweep(Clock::now() + kLater);
  ASSERT_TRUE(Withdraw(reader.session, {{.id = share.share}}).ok());
  EXPECT_EQ(Now().pinned_bytes, 256u);
  EXPECT_EQ(broker().PollHazards().freed, 0u);
  reader.Clear();
  EXPECT_EQ(broker().PollHazards().freed, 1u);
  EXPECT_EQ(Now().pinned_bytes, 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
