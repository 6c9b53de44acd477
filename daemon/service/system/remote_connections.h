// The RemoteConnections are those over TCP that gRPC owns, from the moment they are accepted: how many there are of one
// address, and of one subject once it has shown itself. Who has not yet shown itself, or is one too many, makes room
// for who comes next.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/config/config.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class RemoteConnections {
 public:
  explicit RemoteConnections(const Limits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED: limits.tcp_connections_per_address; or limits.tcp_connections, and all of them have shown who
  // they are: else the oldest that has not is shut down. REQUIRES: `descriptor` is a TCP socket, gRPC's from here on.
  Status Admit(int descriptor) AB_EXCLUDES(mutex_);

  // `name` is gRPC's name for the peer, "ipv4:127.0.0.1:5000"; it has shown to be this subject. UNAVAILABLE: it has
  // ended; RESOURCE_EXHAUSTED: limits.tcp_connections_per_subject others of it live.
  Status Identify(std::string_view name, uint32_t subject) AB_EXCLUDES(mutex_);

 private:
  using Address = std::array<uint8_t, 16>;    // as of IPv6
  using Peer = std::pair<Address, uint16_t>;  // and its port
  struct Connection {
    uint64_t inode = 0;  // the generation of its number
    Peer peer;
    uint64_t order = 0;
    std::optional<uint32_t> subject;
  };

  static std::optional<Peer> PeerOf(int descriptor);
  static std::optional<Peer> PeerOf(std::string_view name);
  static Address GroupOf(const Peer& peer);
  void ForgetEnded() AB_REQUIRES(mutex_);
  bool ShutOldestUnknown() AB_REQUIRES(mutex_);

  const Limits& limits_;
  Mutex mutex_;
  uint64_t admitted_ AB_GUARDED_BY(mutex_) = 0;
  std::map<int, Connection> connections_ AB_GUARDED_BY(mutex_);  // by descriptor; at most limits.tcp_connections
};

}  // namespace arraybridge
