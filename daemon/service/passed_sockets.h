// PassedSockets are the sockets on which the service manager listens for the daemon, each with a name (sd_listen_fds).
// Take transfers the ownership of one. Clients that connected before the daemon started wait in them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class PassedSockets {
 public:
  static constexpr std::string_view kLifeline = "lifeline";
  static constexpr std::string_view kGrpc = "broker";
  static constexpr std::string_view kAdmin = "admin";
  static constexpr std::string_view kHttp = "http";

  // Holds no socket.
  PassedSockets() = default;
  // Reads $LISTEN_PID, $LISTEN_FDS and $LISTEN_FDNAMES and unsets them, so that a child process does not use them.
  // INVALID_ARGUMENT names a socket whose name is unknown or used twice, or whose kind does not match its name.
  // REQUIRES: called once, before threads are started.
  static Result<PassedSockets> FromEnvironment();

  // The non-blocking, listening socket of this name; invalid if none was passed.
  UniqueFd Take(std::string_view name);

 private:
  Status Add(std::string_view name, UniqueFd socket);

  std::map<std::string, UniqueFd, std::less<>> sockets_;
};

}  // namespace arraybridge
