// GrpcDoorConnections remembers who is at the other end of a connection that gRPC owns, by its descriptor's number.
// gRPC closes descriptors without telling: a number counts as long as it still is the socket (inode) that was admitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/broker/broker.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class GrpcDoorConnections {
 public:
  explicit GrpcDoorConnections(uint64_t connections_per_uid) : connections_per_uid_(connections_per_uid) {}

  // False, and nothing is remembered: `peer`'s uid has as many living connections as one may have.
  // REQUIRES: `descriptor` is an open socket.
  bool Admit(int descriptor, const Peer& peer);

  // `name` is gRPC's name for the peer, "fd:N". Nothing if that connection is not ours or has ended.
  std::optional<Peer> PeerOf(std::string_view name) const;
  // The same, with a secret of this connection alone: who states it has heard an answer on it.
  struct Known {
    Peer peer;
    std::string secret;
  };
  std::optional<Known> KnownAs(std::string_view name) const;
  // The same, of the user alone.
  std::optional<uint32_t> UidOf(std::string_view name) const;

 private:
  struct Connection {
    uint64_t inode;  // the generation of its number
    Peer peer;
    std::string secret;
  };

  // Null if it is not ours or has ended. `descriptor`: its number.
  const Connection* Find(std::string_view name, int* descriptor) const AB_REQUIRES(mutex_);
  void Forget(std::unordered_map<int, Connection>::iterator gone) AB_REQUIRES(mutex_);
  void ForgetEnded(uint32_t uid) AB_REQUIRES(mutex_);

  const uint64_t connections_per_uid_;
  mutable Mutex mutex_;
  std::unordered_map<int, Connection> connections_ AB_GUARDED_BY(mutex_);  // never more than there are descriptors
  std::unordered_map<uint32_t, uint64_t> of_uid_ AB_GUARDED_BY(mutex_);    // ended ones too, until somebody needs room
};

}  // namespace arraybridge
