// SPDX-License-Identifier: Apache-2.0
// Many threads, one broker, real memory: for ThreadSanitizer, and for errors of interleaving.
#include <thread>

#include "daemon/memory/host/host_backend.h"
#include "daemon/memory/host/warm_backend.h"
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

constexpr int kRounds = 200;
const Device kCpu{kDeviceCpu, 0, {}};

void Work(Broker& broker, int worker) {
  for (int round = 0; round < kRounds; ++round) {
    const auto session = broker.OpenSession({.uid = static_cast<uint32_t>(worker % 2)})->session;
    const auto arena = broker.Allocate(session, {"", kCpu, 64 * 1024});
    if (arena.ok()) {
      const ArenaId id{arena->handle.arena};
      EXPECT_TRUE(broker.Mapped(session, id).ok());
      const std::string name = Concat("s", round % 3);
      PublishCall call;
      call.name = name;
      call.arena = id;
      call.arena_generation = arena->handle.generation;
      call.size = 1000;
      call.replace = true;
      EXPECT_TRUE(broker.Publish(session, call).ok());
      const ShareKey keys[] = {{.name = "s0"}, {.name = name}};
      const auto acquired = broker.Acquire(session, "", keys, true);
      if (acquired.ok()) {
        const uint64_t lease = Number(acquired->shares.front().lease);
        EXPECT_EQ(*broker.Release(session, {&lease, 1}, {}, {}), 1u);
      }
      const auto ticket = broker.IssueTicket(session, id, Access::kRead);
      EXPECT_TRUE(ticket.ok() && broker.Redeem(session, *ticket).ok());
      broker.TakeReturned(session, 8);
      EXPECT_TRUE(broker.ListShares(session, {.page_size = 4}).ok());
    } else {
      EXPECT_EQ(arena.status().code(), Code::kResourceExhausted);
    }
    broker.EndSession(session);
    if (round % 4 == 0) broker.Sweep(Clock::now());
  }
}

TEST(BrokerThreads, LoseNothing) {
  const auto host = MakeHostBackend({.capacity_bytes = 8 << 20, .huge_pages = false});
  WarmBackend warm(*host, {.cache_bytes = 1 << 20});
  const Config config;
  Broker broker(config, {&warm});
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) workers.emplace_back([&, worker] { Work(broker, worker); });
  std::thread refiller([&] {
    for (int round = 0; round < kRounds; ++round) warm.Refill();
  });
  for (std::thread& worker : workers) worker.join();
  refiller.join();

  for (const uint32_t uid : {0u, 1u}) {
    const auto session = broker.OpenSession({.uid = uid})->session;
    const auto left = broker.ListShares(session, {.page_size = 99});
    for (const ShareRow& row : left->rows) {
      const ShareKey key{.id = row.facts->id};
      EXPECT_TRUE(broker.Withdraw(session, "", {&key, 1}).ok());
    }
  }
  EXPECT_FALSE(broker.Sweep(Clock::now()).more_later);
  warm.Trim();
  const Snapshot end = broker.TakeSnapshot();
  EXPECT_EQ(end.charged_bytes, 0u);
  EXPECT_EQ(end.arenas + end.dying_arenas + end.shares + end.withdrawn_shares + end.leases, 0u);
  EXPECT_EQ(host->usage(kCpu).allocated_bytes, 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
