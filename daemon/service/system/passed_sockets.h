// PassedSockets are those that the service manager listens on for us, each under a name (sd_listen_fds). Who takes one
// owns it; clients that connected before we ran wait in it.
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

  // None.
  PassedSockets() = default;
  // From $LISTEN_PID, $LISTEN_FDS and $LISTEN_FDNAMES, which are forgotten: no child of ours takes them for its own.
  // INVALID_ARGUMENT names a socket whose name is unknown or comes twice, or that is not of the kind its name says.
  // REQUIRES: called once, before there are threads.
  static Result<PassedSockets> FromEnvironment();

  // Non-blocking, listening; invalid if none was passed under this name.
  UniqueFd Take(std::string_view name);

 private:
  Status Add(std::string_view name, UniqueFd socket);

  std::map<std::string, UniqueFd, std::less<>> sockets_;
};

}  // namespace arraybridge
