// SPDX-License-Identifier: Apache-2.0
// A seeded random run, compared with a model of names, leases and Charges. At each step the charged bytes equal the
// allocated bytes, and nothing is left after the last session has ended.
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

class ModelTest : public BrokerTest {
 protected:
  struct Client {
    SessionId session{};
    uint32_t uid = 0;
    std::vector<Handle> arenas;
    std::map<LeaseId, std::pair<uint32_t, std::string>> leases;
    std::map<LeaseId, Handle> handles;
  };

  uint64_t Random(uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random_); }
  Client& Anyone() { return clients_[Random(clients_.size())]; }
  std::string AnyName() { return Concat("s", Random(20)); }

  void Join() {
    const auto uid = static_cast<uint32_t>(Random(2));
    clients_.push_back({Open(uid), uid, {}, {}, {}});
  }
  void Leave() {
    const auto at = clients_.begin() + static_cast<std::ptrdiff_t>(Random(clients_.size()));
    broker().EndSession(at->session);
    clients_.erase(at);
  }
  void Allocate() {
    Client& client = Anyone();
    auto arena = broker().Allocate(client.session, {"", kHost, 1 + Random(4 * kPage)});
    if (!arena.ok()) {
      EXPECT_EQ(arena.status().code(), Code::kResourceExhausted);
      return;
    }
    ASSERT_TRUE(broker().Mapped(client.session, ArenaId{arena->handle.arena}).ok());
    client.arenas.push_back(std::move(arena->handle));
  }
  void PublishSome() {
    Client& client = Anyone();
    if (client.arenas.empty()) return;
    const Handle& arena = client.arenas[Random(client.arenas.size())];
    const std::string name = AnyName();
    auto call = Call(arena, name, Random(arena.size / 256) * 256, 1 + Random(600));
    call.replace = Random(2) == 0;
    const bool taken = names_.contains({client.uid, name});
    const auto share = broker().Publish(client.session, call);
    if (share.ok()) {
      EXPECT_TRUE(!taken || call.replace);
      names_[{client.uid, name}] = share->generation;
    } else {
      EXPECT_THAT(share.status().reason(), testing::AnyOf("NAME_TAKEN", "OVERLAP", "OUT_OF_BOUNDS"));
    }
  }
  // Publishes a leased share once more. Its arena may be any client's of the same user, alive or not.
  void ForwardSome() {
    Client& client = Anyone();
    if (client.leases.empty()) return;
    const auto lease = std::next(client.leases.begin(), static_cast<std::ptrdiff_t>(Random(client.leases.size())));
    const Handle& handle = client.handles.at(lease->first);
    const std::string name = AnyName();
    auto call = Call(handle, name, handle.offset, handle.size);
    call.source = ShareSource{.lease = lease->first};
    call.replace = Random(2) == 0;
    const bool taken = names_.contains({client.uid, name});
    const auto share = broker().Publish(client.session, call);
    EXPECT_EQ(share.ok(), !taken || call.replace) << share.status().ToString();
    if (share.ok()) names_[{client.uid, name}] = share->generation;
  }
  void AcquireSome() {
    Client& client = Anyone();
    const std::string name = AnyName();
    const auto acquired = Acquire(client.session, {{.name = name}});
    const auto known = names_.find({client.uid, name});
    ASSERT_EQ(acquired.ok(), known != names_.end()) << name;
    if (!acquired.ok()) return;
    EXPECT_EQ(acquired->shares.at(0).facts->generation, known->second);
    client.leases[acquired->shares.at(0).lease] = known->first;
    const Handle& handle = acquired->shares.at(0).handle;
    Handle place;
    place.arena = handle.arena;
    place.generation = handle.generation;
    place.offset = handle.offset;
    place.size = handle.size;
    client.handles[acquired->shares.at(0).lease] = std::move(place);
  }
  void ReleaseSome() {
    Client& client = Anyone();
    if (client.leases.empty()) return;
    const auto lease = std::next(client.leases.begin(), static_cast<std::ptrdiff_t>(Random(client.leases.size())));
    EXPECT_EQ(Release(client.session, lease->first), 1u);
    EXPECT_EQ(Release(client.session, lease->first), 0u);
    client.leases.erase(lease);
  }
  void WithdrawSome() {
    Client& client = Anyone();
    const std::string name = AnyName();
    EXPECT_EQ(Withdraw(client.session, {{.name = name}}).ok(), names_.erase({client.uid, name}) == 1);
  }
  void GiveBackSome() {
    Client& client = Anyone();
    if (client.arenas.empty()) return;
    GiveBack(client.session, client.arenas.back());
    client.arenas.pop_back();
  }

  void Step() {
    const uint64_t dice = clients_.empty() ? 0 : Random(100);
    if (dice < 2) return clients_.size() < 8 ? Join() : Sweeping();
    if (dice < 3) return Leave();
    if (dice < 15) return Allocate();
    if (dice < 34) return PublishSome();
    if (dice < 40) return ForwardSome();
    if (dice < 60) return AcquireSome();
    if (dice < 80) return ReleaseSome();
    if (dice < 90) return WithdrawSome();
    if (dice < 95) return GiveBackSome();
    Sweeping();
  }
  void Sweeping() { Sweep(Clock::now() + std::chrono::minutes(Random(3))); }

  void ExpectConserved() {
    const Snapshot now = Now();
    size_t leases = 0;
    for (const Client& client : clients_) leases += client.leases.size();
    EXPECT_EQ(now.charged_bytes, world().allocated);
    EXPECT_EQ(now.leases, leases);
    EXPECT_EQ(now.shares, names_.size());
    EXPECT_EQ(now.sessions, clients_.size());
  }

  std::mt19937_64 random_;
  std::vector<Client> clients_;
  std::map<std::pair<uint32_t, std::string>, uint64_t> names_;  // value: the generation
};

TEST_F(ModelTest, NothingIsLostAndNothingIsLeft) {
  const char* const chosen = std::getenv("ARRAYBRIDGE_TEST_SEED");
  const uint64_t seed = chosen == nullptr ? 20260 : std::strtoull(chosen, nullptr, 10);
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(Concat("ARRAYBRIDGE_TEST_SEED=", seed));
  random_.seed(seed);
  for (int step = 0; step < 20000 && !HasFailure(); ++step) {
    world().held = Random(3) == 0;
    world().mapped_writable = Random(2) == 0;
    Step();
    ExpectConserved();
  }
  EXPECT_GT(Now().publishes_total, 1000u);
  EXPECT_GT(Now().acquires_total, 1000u);
  EXPECT_GT(Now().forwards_total, 100u);

  world().held = false;
  world().mapped_writable = false;
  for (const Client& client : clients_) broker().EndSession(client.session);
  for (const auto& [key, generation] : names_) {
    ASSERT_TRUE(Withdraw(Open(key.first), {{.name = key.second}}).ok());
  }
  EXPECT_FALSE(Sweep(Clock::now() + std::chrono::minutes(2)).more_later);
  const Snapshot end = Now();
  EXPECT_EQ(end.charged_bytes, 0u);
  EXPECT_EQ(end.arenas + end.dying_arenas + end.shares + end.withdrawn_shares + end.leases, 0u);
  EXPECT_EQ(world().allocated, 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
