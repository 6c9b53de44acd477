// SPDX-License-Identifier: Apache-2.0
// gRPC closes descriptors without notice, so an entry is valid only while the number still refers to the socket (inode)
// that was admitted.
#include "daemon/service/system/remote_connections.h"

#include <sys/socket.h>

#include <algorithm>

#include "daemon/at_limit.h"
#include "proto/boundary/endpoint.h"

namespace arraybridge {
namespace {

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

std::optional<AddressAndPort> RemoteConnections::PeerOf(std::string_view name) {
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
  return AddressIn(address->storage);
}

Status RemoteConnections::Admit(int descriptor) {
  const auto peer = PeerAddressOf(descriptor);
  if (!peer) return Unavailable("the connection has ended");
  const MutexLock lock(mutex_);
  ForgetEnded();
  const IpAddress group = GroupOf(peer->first);
  const auto its =
      std::ranges::count_if(connections_, [&](const auto& one) { return GroupOf(one.second.peer.first) == group; });
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
  ShutDownSocket(oldest->first, oldest->second.inode);
  connections_.erase(oldest);
  return true;
}

}  // namespace arraybridge
