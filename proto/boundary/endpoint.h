// An Endpoint is HOST:PORT as people write it: 127.0.0.1:9443, [::1]:9443.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

struct Endpoint {
  std::string host;  // without brackets
  uint16_t port = 0;
  bool bracketed = false;  // it is an IPv6 address

  std::string text() const;
};

// INVALID_ARGUMENT: what is no HOST:PORT; an IPv6 address without brackets, or brackets around something else.
Result<Endpoint> ReadEndpoint(std::string_view text);

// As the kernel takes it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// INVALID_ARGUMENT: the host is a name, which is nowhere looked up.
Result<SocketAddress> NumericAddress(const Endpoint& endpoint);

// Whether nobody but this host reaches it: 127.0.0.0/8, as IPv6 writes it too, and ::1.
bool IsLoopback(const SocketAddress& address);

}  // namespace arraybridge
