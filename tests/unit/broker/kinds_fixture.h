// SPDX-License-Identifier: Apache-2.0
// A Broker of GPU memory without bytes, with both kinds of handle, and processes that can be watched and killed.
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/fake_gpu_backend.h"

namespace arraybridge::daemon {

// A process that sleeps until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Sleeper() { Kill(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ProcessFd Watch() const {
    return std::make_shared<const UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

class KindsTest : public testing::Test {
 protected:
  // `events`: the name of the domain in which the session opens interprocess events.
  SessionId Open(std::vector<HandleKind> kinds, ProcessFd process = nullptr, std::string events = {}) {
    Peer peer{.uid = 1000, .process_id = 4711, .client = "test"};
    peer.kinds = std::move(kinds);
    peer.events = std::move(events);
    peer.process = std::move(process);
    return broker_.OpenSession(std::move(peer))->session;
  }
  Handle Allocated(SessionId session) {
    auto arena = broker_.Allocate(session, {"default", kGpu, kPage});
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    EXPECT_TRUE(broker_.Mapped(session, ArenaId{arena->handle.arena}).ok());
    return std::move(arena->handle);
  }
  // `event`: 64 bytes that readers wait for; empty: no event.
  PublishCall Call(const Handle& arena, std::string event = {}) {
    PublishCall call;
    call.ns = "default";
    call.name = "on-gpu";
    call.fence.event = std::move(event);
    call.arena = ArenaId{arena.arena};
    call.arena_generation = arena.generation;
    call.size = 256;
    return call;
  }
  void Publish(SessionId session, const Handle& arena) {
    PublishCall call = Call(arena);
    const auto published = broker_.Publish(session, std::move(call));
    ASSERT_TRUE(published.ok()) << published.status().ToString();
    EXPECT_EQ(published->immutability, Immutability::kByContract);
  }
  Result<AcquiredShares> Acquire(SessionId session) {
    const ShareKey key{.name = "on-gpu"};
    return broker_.Acquire(session, "default", {&key, 1}, true);
  }
  void Release(SessionId session, const AcquiredShares& acquired) {
    const uint64_t lease = Number(acquired.shares.at(0).lease);
    ASSERT_TRUE(broker_.Release(session, {&lease, 1}, {}, {}).ok());
  }
  void Withdraw(SessionId session) {
    const ShareKey key{.name = "on-gpu"};
    ASSERT_TRUE(broker_.Withdraw(session, "default", {&key, 1}).ok());
  }
  uint64_t Swept() { return broker_.Sweep(Clock::now()).freed_bytes; }

  Config config_;
  FakeBackend host_{kCapacity};
  FakeGpuBackend vmm_{HandleKind::kCudaVmm};
  FakeGpuBackend ipc_{HandleKind::kCudaIpc};
  Broker broker_{config_, {&host_, &vmm_, &ipc_}};
};

}  // namespace arraybridge::daemon
