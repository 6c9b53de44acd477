// SPDX-License-Identifier: Apache-2.0
// RemoteConnections counts the TCP connections that gRPC owns, from their acceptance: per address, and per subject once
// a connection has identified itself. A connection that has not identified itself is closed when a new one needs its
// place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/config/config.h"
#include "daemon/service/system/accepted_socket.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class RemoteConnections {
 public:
  explicit RemoteConnections(const Limits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED: limits.tcp_connections_per_address is reached, or limits.tcp_connections is reached and all
  // connections have identified themselves; otherwise the oldest connection that has not is shut down. REQUIRES:
  // `descriptor` is a TCP socket that gRPC owns from here on.
  Status Admit(int descriptor) AB_EXCLUDES(mutex_);

  // Assigns a connection to a subject. `name` is gRPC's name for the peer, "ipv4:127.0.0.1:5000". UNAVAILABLE: the
  // connection has ended. RESOURCE_EXHAUSTED: the subject has limits.tcp_connections_per_subject other connections.
  Status Identify(std::string_view name, uint32_t subject) AB_EXCLUDES(mutex_);

 private:
  struct Connection {
    uint64_t inode = 0;  // distinguishes it from other sockets with the same number
    AddressAndPort peer;
    uint64_t order = 0;
    std::optional<uint32_t> subject;
  };

  static std::optional<AddressAndPort> PeerOf(std::string_view name);
  void ForgetEnded() AB_REQUIRES(mutex_);
  bool ShutOldestUnknown() AB_REQUIRES(mutex_);

  const Limits& limits_;
  Mutex mutex_;
  uint64_t admitted_ AB_GUARDED_BY(mutex_) = 0;
  std::map<int, Connection> connections_
      AB_GUARDED_BY(mutex_);  // by descriptor; at most limits.tcp_connections entries
};

}  // namespace arraybridge
