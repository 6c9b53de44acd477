// SPDX-License-Identifier: Apache-2.0
// A LocalDoor over a broker of host memory, and clients on socket pairs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/memory/host/host_backend.h"
#include "daemon/service/lifeline/local_door.h"
#include "tests/unit/service/lifeline_client.h"

namespace arraybridge::daemon {

// A process that sleeps until it is killed.
class Mortal {
 public:
  Mortal() {
    int gate[2] = {-1, -1};
    EXPECT_EQ(::pipe2(gate, O_CLOEXEC), 0);
    id_ = ::fork();
    if (id_ == 0) {  // makes only system calls, because the parent has threads
      char byte;
      ::close(gate[1]);
      static_cast<void>(!::read(gate[0], &byte, 1));
      ::_exit(0);
    }
    ::close(gate[0]);
    gate_.reset(gate[1]);
  }
  ~Mortal() {
    Die();
    ::waitpid(id_, nullptr, 0);
  }
  Mortal(const Mortal&) = delete;
  Mortal& operator=(const Mortal&) = delete;

  UniqueFd descriptor() const {
    UniqueFd descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id_, 0)));
    EXPECT_TRUE(descriptor.valid());
    return descriptor;
  }
  void Die() { gate_.reset(); }

 private:
  pid_t id_ = -1;
  UniqueFd gate_;
};

class LocalDoorTest : public ::testing::Test {
 protected:
  // The first connection starts the door, so that a test may set limits before.
  LifelineClient Connect(uint32_t uid = 1000, UniqueFd process = {}) {
    if (!door_) door_.emplace(config_, verbs());
    auto [client, connection] = LifelineClient::Pair(uid);
    connection.peer.process = std::make_shared<const UniqueFd>(std::move(process));
    door_->Adopt(std::move(connection));
    return std::move(client);
  }
  LifelineClient Greeted(uint32_t uid = 1000) {
    LifelineClient client = Connect(uid);
    EXPECT_EQ(client.Hello().code(), Code::kOk);
    return client;
  }
  Verbs& verbs() {
    if (!broker_) {
      broker_.emplace(config_, std::vector<MemoryBackend*>{backend_.get()});
      verbs_.emplace(config_, *broker_, [] {});
    }
    return *verbs_;
  }
  v1::GetStatsResponse Stats(LifelineClient& client) {
    return client.Call(Verb::kGetStats, v1::GetStatsRequest()).As<v1::GetStatsResponse>();
  }
  // Waits until the broker has so many sessions, because the door has its own thread.
  void AwaitSessions(LifelineClient& witness, uint64_t sessions) {
    while (Stats(witness).sessions() != sessions) ::usleep(100);
  }

  Config config_;
  std::unique_ptr<MemoryBackend> backend_ = MakeHostBackend({64ull << 20, false});
  std::optional<Broker> broker_;
  std::optional<Verbs> verbs_;
  std::optional<LocalDoor> door_;
};

}  // namespace arraybridge::daemon
