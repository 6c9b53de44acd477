// gRPC closes descriptors without notice, so an entry is valid only while the number still refers to the socket (inode)
// that was admitted. A socket is shut down through a duplicate that was verified to be that socket, so that no later
// socket is hit.
#include "daemon/service/remote_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "daemon/at_limit.h"
#include "proto/boundary/endpoint.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

// 0 if `descriptor` is not open.
uint64_t InodeOf(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 ? facts.st_ino : 0;
}

std::pair<std::array<uint8_t, 16>, uint16_t> Plain(const sockaddr_storage& from) {
  std::array<uint8_t, 16> address{};
  if (from.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&from);
    std::memcpy(address.data(), &v6->sin6_addr, address.size());
    return {address, ntohs(v6->sin6_port)};
  }
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&from);
  address[10] = address[11] = 0xff;  // IPv4-mapped IPv6 form
  std::memcpy(address.data() + 12, &v4->sin_addr, sizeof v4->sin_addr);
  return {address, ntohs(v4->sin_port)};
}

std::string Decoded(std::string_view text) {
  std::string decoded;
  for (; !text.empty(); text.remove_prefix(1)) {
    if (text.starts_with("%5B") || text.starts_with("%5D")) {
      decoded += text[2] == 'B' ? '[' : ']';
      text.remove_prefix(2);
    } else {
      decoded += text.front();
    }
  }
  return decoded;
}

}  // namespace

std::optional<RemoteConnections::Peer> RemoteConnections::PeerOf(int descriptor) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&from), &size) != 0) return std::nullopt;
  return Plain(from);
}

std::optional<RemoteConnections::Peer> RemoteConnections::PeerOf(std::string_view name) {
  const size_t scheme = name.find(':');
  if (scheme == std::string_view::npos) return std::nullopt;
  std::string text = Decoded(name.substr(scheme + 1));
  // Removes the interface from a link-local address.
  if (const size_t zone = text.find('%'); zone != std::string::npos) {
    text.erase(zone, std::min(text.find(']'), text.size()) - zone);
  }
  const auto endpoint = ReadEndpoint(text);
  const auto address = endpoint.ok() ? NumericAddress(*endpoint) : endpoint.status();
  if (!address.ok()) return std::nullopt;
  return Plain(address->storage);
}

// A client that has one IPv6 address usually has the whole /64 network, so the network is one group.
RemoteConnections::Address RemoteConnections::GroupOf(const Peer& peer) {
  Address group = peer.first;
  const bool is_v4 = group[10] == 0xff && group[11] == 0xff &&
                     std::all_of(group.begin(), group.begin() + 10, [](uint8_t byte) { return byte == 0; });
  if (!is_v4) std::fill(group.begin() + 8, group.end(), uint8_t{0});
  return group;
}

Status RemoteConnections::Admit(int descriptor) {
  const auto peer = PeerOf(descriptor);
  if (!peer) return Unavailable("the connection has ended");
  const MutexLock lock(mutex_);
  ForgetEnded();
  const Address group = GroupOf(*peer);
  const auto its =
      std::ranges::count_if(connections_, [&](const auto& one) { return GroupOf(one.second.peer) == group; });
  if (static_cast<uint64_t>(its) >= limits_.tcp_connections_per_address) {
    return AtLimit("TOO_MANY_CONNECTIONS", "tcp_connections_per_address", limits_.tcp_connections_per_address);
  }
  if (connections_.size() >= limits_.tcp_connections && !ShutOldestUnknown()) {
    return AtLimit("TOO_MANY_CONNECTIONS", "tcp_connections", limits_.tcp_connections);
  }
  connections_[descriptor] = {InodeOf(descriptor), *peer, ++admitted_, std::nullopt};
  return Ok();
}

Status RemoteConnections::Identify(std::string_view name, uint32_t subject) {
  const auto peer = PeerOf(name);
  const MutexLock lock(mutex_);
  uint64_t others = 0;
  Connection* its = nullptr;
  for (auto& [descriptor, one] : connections_) {
    const bool meant = peer && one.peer == *peer;
    if (!meant && one.subject != subject) continue;
    if (InodeOf(descriptor) != one.inode) continue;
    if (meant) {
      its = &one;
    } else {
      ++others;
    }
  }
  if (its == nullptr) return Unavailable("the connection has ended");
  if (its->subject == subject) return Ok();
  if (others >= limits_.tcp_connections_per_subject) {
    return AtLimit("TOO_MANY_CONNECTIONS", "tcp_connections_per_subject", limits_.tcp_connections_per_subject);
  }
  its->subject = subject;
  return Ok();
}

void RemoteConnections::ForgetEnded() {
  std::erase_if(connections_, [](const auto& one) { return InodeOf(one.first) != one.second.inode; });
}

bool RemoteConnections::ShutOldestUnknown() {
  auto oldest = connections_.end();
  for (auto one = connections_.begin(); one != connections_.end(); ++one) {
    if (one->second.subject) continue;
    if (oldest == connections_.end() || one->second.order < oldest->second.order) oldest = one;
  }
  if (oldest == connections_.end()) return false;
  const UniqueFd same(::fcntl(oldest->first, F_DUPFD_CLOEXEC, 0));
  if (same.valid() && InodeOf(same.get()) == oldest->second.inode) ::shutdown(same.get(), SHUT_RDWR);
  connections_.erase(oldest);
  return true;
}

}  // namespace arraybridge
