// SPDX-License-Identifier: Apache-2.0
// An Endpoint is HOST:PORT in its usual form: 127.0.0.1:9443, [::1]:9443.
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
};

// INVALID_ARGUMENT: the text is not HOST:PORT, an IPv6 address has no brackets, or brackets surround something else.
Result<Endpoint> ReadEndpoint(std::string_view text);

// An address in the kernel's form.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// INVALID_ARGUMENT: the host is a name; names are not looked up.
Result<SocketAddress> NumericAddress(const Endpoint& endpoint);

// Whether only this host can reach the address: 127.0.0.0/8, also in its IPv6 form, and ::1.
bool IsLoopback(const SocketAddress& address);

// Whether a TCP socket listens on this address.
bool IsListeningOn(int socket, const std::string& address);

}  // namespace arraybridge
