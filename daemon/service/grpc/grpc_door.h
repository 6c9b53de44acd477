// SPDX-License-Identifier: Apache-2.0
// The GrpcDoor is the public gRPC door: every verb except Redeem, health and reflection, for clients in any language.
// gRPC does not listen: the listener passes accepted connections in. An answer carries a Ticket, not a descriptor.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Thread-safe. `config`, `broker`, `verbs` and the objects that answer for `verbs` (waiting line, worker) must outlive
// it.
class GrpcDoor {
 public:
  GrpcDoor(const Config& config, Broker& broker, Verbs& verbs);
  // Drains with a deadline of now.
  ~GrpcDoor();
  GrpcDoor(const GrpcDoor&) = delete;
  GrpcDoor& operator=(const GrpcDoor&) = delete;

  // Takes over an accepted, non-blocking stream socket and its peer. Refuses (closes) it if the uid already has
  // Limits.connections_per_uid connections here, or while draining. Closes a connection without a call for
  // limits.hello_timeout; gRPC clients reconnect automatically.
  void Adopt(UniqueFd connection, const Peer& peer);

  // Sets the health of a service other than the broker: "arraybridge.v1.Broker/<GPU's UUID>". No effect after draining
  // has begun.
  void SetServing(const std::string& service, bool serving);

  // Sets health to NOT_SERVING and changes nothing else.
  void SayDraining();
  // Sets health to NOT_SERVING, ends session streams with `draining`, lets running calls finish until the deadline, and
  // then cancels them. Returns when no call is running. Idempotent.
  void Drain(Clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge::daemon
