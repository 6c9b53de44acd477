// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace arraybridge {

Result<Endpoint> ReadEndpoint(std::string_view text) {
  const auto refused = [text] { return InvalidArgument("'", text, "' is not HOST:PORT, such as 127.0.0.1:9443"); };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refused();
  Endpoint endpoint;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + colon + 1, last, endpoint.port);
  if (error != std::errc{} || end != last) return refused();
  std::string_view host = text.substr(0, colon);
  endpoint.bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (endpoint.bracketed) host = host.substr(1, host.size() - 2);
  const bool has_colon = host.find(':') != std::string_view::npos;
  if (host.empty() || has_colon != endpoint.bracketed || host.find_first_of("[]/@ ") != std::string_view::npos) {
    return refused();
  }
  endpoint.host = std::string(host);
  return endpoint;
}

Result<SocketAddress> NumericAddress(const Endpoint& endpoint) {
  SocketAddress address;
  if (endpoint.bracketed) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (::inet_pton(AF_INET6, endpoint.host.c_str(), &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(endpoint.port);
      address.size = sizeof *v6;
      return address;
    }
  } else {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    if (::inet_pton(AF_INET, endpoint.host.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(endpoint.port);
      address.size = sizeof *v4;
      return address;
    }
  }
  return InvalidArgument("'", endpoint.host, "' is not a numeric address, such as 127.0.0.1 or [::1]");
}

bool IsLoopback(const SocketAddress& address) {
  constexpr uint8_t kLoopbackNet = 127;
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(v4.sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kLoopbackNet);
}

bool IsListeningOn(int socket, const std::string& address) {
  const auto endpoint = ReadEndpoint(address);
  const auto numbers = endpoint.ok() ? NumericAddress(*endpoint) : endpoint.status();
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (!numbers.ok() || ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return false;
  // The port has the same offset in both kinds of address.
  if (endpoint->port == 0) reinterpret_cast<sockaddr_in&>(bound).sin_port = 0;
  return size == numbers->size && std::memcmp(&bound, &numbers->storage, size) == 0;
}

}  // namespace arraybridge
