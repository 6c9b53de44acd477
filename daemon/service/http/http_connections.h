// SPDX-License-Identifier: Apache-2.0
// HttpConnections counts the connections to the HTTP pages, which belong to no user: in all, and by address. A new one
// is always let in, and takes the place of the oldest. A connection is shut down if its request takes too long.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/service/system/accepted_socket.h"

namespace arraybridge::daemon {

// Used by one thread, which also closes the sockets.
class HttpConnections {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `limits` outlives it.
  explicit HttpConnections(const Limits& limits) : limits_(limits) {}

  // For each new connection: at limits.http_connections_per_address the oldest connection of its address is shut down,
  // at limits.http_connections, or a quarter of the descriptors that the process may open, the oldest one of the
  // address with the most. REQUIRES: the descriptors are TCP sockets.
  void Add(std::span<const int> descriptors, TimePoint now);
  // The next request of this connection begins.
  void Answered(int descriptor, TimePoint now);
  // Shuts down the connections whose request has not ended within limits.http_request_timeout. Returns the time until
  // the next one's ends, or nullopt if there is no connection.
  std::optional<std::chrono::milliseconds> ShutLate(TimePoint now);

 private:
  struct Connection {
    int descriptor;
    uint64_t inode;
    IpAddress group;
    TimePoint begun;  // the current request
  };

  void Add(int descriptor, TimePoint now);
  void ForgetEnded();
  uint64_t CountOf(const IpAddress& group) const;
  void ShutOldestOf(const IpAddress& group);
  IpAddress GroupWithMost() const;

  const Limits& limits_;
  std::vector<Connection> connections_;  // by `begun`, the oldest first
};

}  // namespace arraybridge::daemon
