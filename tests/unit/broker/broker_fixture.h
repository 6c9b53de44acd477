// SPDX-License-Identifier: Apache-2.0
// A broker over memory without bytes, and short calls for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/ledger/account.h"
#include "tests/unit/broker/fake_backend.h"

namespace arraybridge::daemon {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kCapacity = 1024 * kPage;
inline constexpr auto kSender = ChannelRole::kSender;
inline constexpr auto kReceiver = ChannelRole::kReceiver;
inline constexpr uint32_t kAlice = 1000;  // uids
inline constexpr uint32_t kBob = 1001;

template <class T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}
inline const Status& StatusOf(const Status& status) { return status; }

MATCHER_P2(FailsWith, code, reason, "") {
  const Status& status = StatusOf(arg);
  *result_listener << status.ToString() << " [" << status.reason() << "]";
  return status.code() == code && status.reason() == reason;
}

class BrokerTest : public testing::Test {
 protected:
  // The first call makes the broker; limits in `config_` that the constructor reads must be set before.
  Broker& broker() {
    if (broker_ == nullptr) broker_ = std::make_unique<Broker>(config_, std::vector<MemoryBackend*>{&backend_});
    return *broker_;
  }
  FakeWorld& world() { return *backend_.world; }

  SessionId Open(uint32_t uid = 1000) {
    const auto opened = broker().OpenSession({.uid = uid, .client = "test"});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened->session;
  }
  // An arena that is sealed by contract.
  Handle Arena(SessionId session, uint64_t size = kPage, std::string_view ns = "default") {
    auto arena = Unsealed(session, size, ns);
    EXPECT_TRUE(broker().Mapped(session, ArenaId{arena.arena}).ok());
    return arena;
  }
  Handle Unsealed(SessionId session, uint64_t size = kPage, std::string_view ns = "default") {
    auto arena = broker().Allocate(session, {ns, kHost, size});
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    return std::move(arena->handle);
  }
  static PublishCall Call(const Handle& arena, std::string_view name, uint64_t offset = 0, uint64_t size = 256,
                          std::string_view ns = "default") {
    PublishCall call;
    call.ns = ns;
    call.name = name;
    call.arena = ArenaId{arena.arena};
    call.arena_generation = arena.generation;
    call.offset = offset;
    call.size = size;
    return call;
  }
  PublishedShare Publish(SessionId session, const Handle& arena, std::string_view name, uint64_t offset = 0,
                         uint64_t size = 256) {
    const auto share = broker().Publish(session, Call(arena, name, offset, size));
    EXPECT_TRUE(share.ok()) << share.status().ToString();
    return *share;
  }
  Result<AcquiredShares> Acquire(SessionId session, std::initializer_list<ShareKey> keys,
                                 std::string_view ns = "default") {
    return broker().Acquire(session, ns, {keys.begin(), keys.size()}, true);
  }
  LeaseId Lease(SessionId session, std::string_view name) {
    const auto acquired = Acquire(session, {{.name = name}});
    EXPECT_TRUE(acquired.ok()) << acquired.status().ToString();
    return acquired->shares.at(0).lease;
  }
  uint32_t Release(SessionId session, LeaseId lease) {
    const uint64_t number = Number(lease);
    return *broker().Release(session, {&number, 1}, {}, {});
  }
  void GiveBack(SessionId session, const Handle& arena) {
    ASSERT_TRUE(broker().Release(session, {}, {&arena.arena, 1}, {}).ok());
  }
  Result<uint32_t> Withdraw(SessionId session, std::initializer_list<ShareKey> keys, std::string_view ns = "default") {
    return broker().Withdraw(session, ns, {keys.begin(), keys.size()});
  }
  Broker::Swept Sweep(Clock::time_point now = Clock::now()) { return broker().Sweep(now); }
  Snapshot Now() { return broker().TakeSnapshot(); }

  const Device kHost{kDeviceCpu, 0, {}};
  Config config_;
  FakeBackend backend_{kCapacity};

 private:
  std::unique_ptr<Broker> broker_;
};

}  // namespace arraybridge::daemon
