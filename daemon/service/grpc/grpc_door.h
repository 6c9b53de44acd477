// The GrpcDoor is the public door: every verb but Redeem for every language, health and reflection. gRPC never listens:
// whoever accepts hands the connection in, of a Unix socket or over TCP. Where an answer would hold a descriptor it
// holds a Ticket.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/system/certificates.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe. `config`, `broker`, `verbs` and what answers for `verbs` (waiting line, worker) outlive it.
class GrpcDoor {
 public:
  // `certificates`: null, or those of the TCP door, which is open then.
  GrpcDoor(const Config& config, Broker& broker, Verbs& verbs, Certificates* certificates = nullptr);
  // Drains without patience.
  ~GrpcDoor();
  GrpcDoor(const GrpcDoor&) = delete;
  GrpcDoor& operator=(const GrpcDoor&) = delete;

  // An accepted, non-blocking stream socket and who is at its other end. Refused (closed) when that uid has
  // limits.connections_per_uid living connections here, or when draining. A connection without a call for
  // limits.hello_timeout is closed; gRPC's clients reconnect by themselves.
  void Adopt(UniqueFd connection, const Peer& peer);

  // An accepted, non-blocking TCP socket: RemoteServer::Adopt. REQUIRES: certificates were given.
  void AdoptRemote(UniqueFd connection);

  // What health says of a service beside the broker's own: "arraybridge.v1.Broker/<GPU's UUID>". Not once it drains.
  void SetServing(const std::string& service, bool serving);

  // Health says NOT_SERVING from now on; everything else goes on.
  void SayDraining();
  // Health says NOT_SERVING, session streams end with `draining`, running calls may end until the deadline and are
  // cancelled then. Returns when no call runs any more. Idempotent.
  void Drain(Clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge
