// SPDX-License-Identifier: Apache-2.0
// Verbs over a real Broker, called as a door calls them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/account.h"
#include "daemon/memory/host/host_backend.h"
#include "daemon/service/verbs/verbs.h"
#include "tests/unit/broker/fake_backend.h"
#include "tests/unit/service/asked.h"

namespace arraybridge::daemon {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kLong = 60000;  // milliseconds: longer than a test waits

class VerbsTest : public ::testing::Test {
 protected:
  Verbs& verbs() {
    if (!broker_) {
      broker_.emplace(config_, std::vector<MemoryBackend*>{backend_.get()});
      verbs_.emplace(config_, *broker_, [this] {
        ++allocated_;
        if (on_allocated_) on_allocated_();
      });
    }
    return *verbs_;
  }
  Caller Open(Door door = Door::kLifeline, uint32_t uid = 1000) {
    v1::OpenSessionRequest hello;
    hello.set_protocol_min(1);
    hello.set_protocol_max(1);
    Peer peer;
    peer.uid = uid;
    peer.door = door;
    const auto opened = verbs().sessions.OpenSession(As<wire::OpenSessionRequest>(hello), peer);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return {SessionId{opened.ok() ? opened->session() : 0}, door};
  }

  TestDoor door() { return TestDoor(verbs()); }
  std::unique_ptr<Awaited<v1::AllocateResponse>> StartAllocate(const Caller& caller, uint64_t size,
                                                               uint64_t timeout_ms = 0, const std::string& ns = {}) {
    v1::AllocateRequest request;
    request.set_namespace_(ns);
    request.set_size(size);
    request.set_timeout_ms(timeout_ms);
    return door().Allocate(caller, request);
  }
  // Allocates an arena as its producer has it: mapped, sealed, its descriptor closed. The mapping is dropped at once.
  v1::Handle Arena(const Caller& caller, uint64_t size) {
    auto answer = StartAllocate(caller, size)->Get();
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    if (!answer.ok()) return {};
    answer->descriptor.reset();
    v1::MappedRequest mapped;
    mapped.set_arena(answer->message.handle().arena());
    EXPECT_TRUE(door().Mapped(caller, mapped).ok());
    return answer->message.handle();
  }
  Result<Answered<v1::PublishResponse>> Publish(const Caller& caller, const v1::Handle& arena, const std::string& name,
                                                uint64_t offset = 0, uint64_t size = 4096, size_t metadata = 0) {
    v1::PublishRequest request = PublishOf(arena, name, false, offset, size);
    request.set_metadata(std::string(metadata, 'm'));
    return door().Publish(caller, request);
  }
  static v1::PublishRequest PublishOf(const v1::Handle& arena, const std::string& name, bool sealed,
                                      uint64_t offset = 0, uint64_t size = 4096) {
    v1::PublishRequest request;
    request.set_sealed(sealed);
    request.set_name(name);
    request.set_arena(arena.arena());
    request.set_arena_generation(arena.generation());
    request.set_offset(offset);
    request.set_size(size);
    v1::ArraySpec* spec = request.mutable_specs()->add_arrays();
    spec->set_bits(8);
    spec->set_lanes(1);
    spec->set_dtype("uint8");
    spec->add_shape(static_cast<int64_t>(size));
    spec->set_size(size);
    return request;
  }
  std::unique_ptr<Awaited<v1::AcquireResponse>> StartAcquire(const Caller& caller,
                                                             const std::vector<std::string>& names,
                                                             uint64_t timeout_ms = 0) {
    v1::AcquireRequest request;
    for (const std::string& name : names) request.add_shares()->set_name(name);
    request.set_timeout_ms(timeout_ms);
    return door().Acquire(caller, request);
  }
  void Withdraw(const Caller& caller, const std::string& name) {
    v1::WithdrawRequest request;
    request.add_shares()->set_name(name);
    EXPECT_TRUE(door().Withdraw(caller, request).ok());
  }

  // Uses memory without bytes. REQUIRES: no verbs yet.
  std::shared_ptr<FakeWorld> FakeMemory(uint64_t capacity) {
    auto fake = std::make_unique<FakeBackend>(capacity);
    auto world = fake->world;
    backend_ = std::move(fake);
    return world;
  }

  Config config_;
  std::unique_ptr<MemoryBackend> backend_ = MakeHostBackend({64 * kMiB, false});
  std::atomic<int> allocated_{0};
  std::function<void()> on_allocated_;  // runs on the slow thread
  std::optional<Broker> broker_;
  std::optional<Verbs> verbs_;
};

}  // namespace arraybridge::daemon
