// SPDX-License-Identifier: Apache-2.0
// The AdminDoor is a separate gRPC door with the service Admin, channelz, health and reflection. It serves connections
// of users in the access list of administrators. The mode of its socket decides which users can connect.
#pragma once

#include <memory>

#include "daemon/config/config.h"
#include "daemon/service/verbs/admin.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Thread-safe. `config` and `admin` must outlive it.
class AdminDoor {
 public:
  // REQUIRES: no public door is built after this one (WishForChannelz).
  AdminDoor(const Config& config, Admin& admin);
  // Drains with a deadline of now.
  ~AdminDoor();
  AdminDoor(const AdminDoor&) = delete;
  AdminDoor& operator=(const AdminDoor&) = delete;

  // As GrpcDoor::Adopt.
  void Adopt(UniqueFd connection, const Peer& peer);
  // Lets running calls finish until the deadline, then cancels them. Idempotent.
  void Drain(Clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge::daemon
