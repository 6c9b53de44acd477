// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/accepted_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

uint64_t InodeOf(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 ? facts.st_ino : 0;
}

std::optional<IpAddress> PeerAddressOf(int descriptor) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&from), &size) != 0) return std::nullopt;
  IpAddress address{};
  if (from.ss_family == AF_INET6) {
    std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, address.size());
    return address;
  }
  const in_addr v4 = reinterpret_cast<const sockaddr_in&>(from).sin_addr;
  address[10] = address[11] = 0xff;  // IPv4-mapped IPv6 form
  std::memcpy(address.data() + 12, &v4, sizeof v4);
  return address;
}

IpAddress GroupOf(IpAddress address) {
  const bool is_v4 = address[10] == 0xff && address[11] == 0xff &&
                     std::all_of(address.begin(), address.begin() + 10, [](uint8_t byte) { return byte == 0; });
  if (!is_v4) std::fill(address.begin() + 8, address.end(), uint8_t{0});
  return address;
}

// Through a duplicate that was verified to be that socket, so that no later socket is hit.
void ShutDownSocket(int descriptor, uint64_t inode) {
  const UniqueFd same(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (same.valid() && InodeOf(same.get()) == inode) ::shutdown(same.get(), SHUT_RDWR);
}

}  // namespace arraybridge::daemon
