// The AdminDoor is a gRPC door of its own: the service Admin, channelz, health and reflection, for connections whose
// user the access list of administrators names. Who may connect at all is decided by its socket.
#pragma once

#include <memory>

#include "daemon/config/config.h"
#include "daemon/service/verbs/admin.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe. `config` and `admin` outlive it.
class AdminDoor {
 public:
  // REQUIRES: no public door is built after it (WishForChannelz).
  AdminDoor(const Config& config, Admin& admin);
  // Drains without patience.
  ~AdminDoor();
  AdminDoor(const AdminDoor&) = delete;
  AdminDoor& operator=(const AdminDoor&) = delete;

  // As GrpcDoor::Adopt.
  void Adopt(UniqueFd connection, const Peer& peer);
  // Running calls may end until the deadline and are cancelled then. Idempotent.
  void Drain(Clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge
