// SPDX-License-Identifier: Apache-2.0
// GrpcDoorConnections stores the peer of each connection that gRPC owns, by descriptor number. gRPC closes descriptors
// without notice, so an entry is valid only while the number still refers to the socket (inode) that was admitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/grpc/grpc_meter.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// Thread-safe.
class GrpcDoorConnections {
 public:
  // `limits` outlives it and every socket that it has admitted.
  explicit GrpcDoorConnections(const Limits& limits) : limits_(limits) {}

  // Stores the peer, and meters the socket. False, and nothing is stored: the peer's uid has the maximum number of open
  // connections, or has reset too many calls. REQUIRES: `descriptor` is an open socket.
  bool Admit(int descriptor, const Peer& peer);

  // `name` is gRPC's name for the peer, "fd:N". Returns nullopt if the connection is unknown or has ended.
  std::optional<Peer> PeerOf(std::string_view name) const;
  // The same, with the secret of this connection: a caller that knows it has received an answer on this connection.
  struct Known {
    Peer peer;
    std::string secret;
  };
  std::optional<Known> KnownAs(std::string_view name) const;
  // The same; returns only the user.
  std::optional<uint32_t> UidOf(std::string_view name) const;

 private:
  struct Connection {
    uint64_t inode;  // distinguishes it from other sockets with the same number
    Peer peer;
    std::string secret;
  };

  // Null if the connection is unknown or has ended. Sets `descriptor` to its number.
  const Connection* Find(std::string_view name, int* descriptor) const AB_REQUIRES(mutex_);
  void Forget(std::unordered_map<int, Connection>::iterator gone) AB_REQUIRES(mutex_);
  void ForgetEnded(uint32_t uid) AB_REQUIRES(mutex_);
  std::shared_ptr<GrpcUser> UserOf(uint32_t uid) AB_REQUIRES(mutex_);

  const Limits& limits_;
  mutable Mutex mutex_;
  std::unordered_map<int, Connection> connections_ AB_GUARDED_BY(mutex_);  // at most one entry for each descriptor
  std::unordered_map<uint32_t, uint64_t> of_uid_
      AB_GUARDED_BY(mutex_);  // includes ended connections until room is needed
  // Without connections, a user remains until its resets are forgiven.
  std::unordered_map<uint32_t, std::shared_ptr<GrpcUser>> users_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge::daemon
