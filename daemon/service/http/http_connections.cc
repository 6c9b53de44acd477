// SPDX-License-Identifier: Apache-2.0
// libevent closes descriptors without notice, so an entry is valid only while the number still refers to the socket
// (inode) that was added.
#include "daemon/service/http/http_connections.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>

namespace arraybridge::daemon {
namespace {

uint64_t QuarterOfDescriptors() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::max<uint64_t>(limit.rlim_cur / 4, 1) : 1;
}

}  // namespace

void HttpConnections::Add(std::span<const int> descriptors, TimePoint now) {
  ForgetEnded();
  for (const int each : descriptors) Add(each, now);
}

void HttpConnections::Add(int descriptor, TimePoint now) {
  const auto peer = PeerAddressOf(descriptor);
  if (!peer) return;  // it has ended
  const IpAddress group = GroupOf(*peer);
  const uint64_t most = std::min(limits_.http_connections, QuarterOfDescriptors());
  if (CountOf(group) >= limits_.http_connections_per_address) ShutOldestOf(group);
  if (connections_.size() >= most) ShutOldestOf(GroupWithMost());
  connections_.push_back({descriptor, InodeOf(descriptor), group, now});
}

void HttpConnections::Answered(int descriptor, TimePoint now) {
  const auto found = std::ranges::find_if(connections_, [descriptor](const Connection& one) {
    return one.descriptor == descriptor && InodeOf(descriptor) == one.inode;
  });
  if (found == connections_.end()) return;
  found->begun = now;
  std::rotate(found, found + 1, connections_.end());
}

std::optional<std::chrono::milliseconds> HttpConnections::ShutLate(TimePoint now) {
  ForgetEnded();
  const auto late = [&](const Connection& one) { return now - one.begun >= limits_.http_request_timeout; };
  while (!connections_.empty() && late(connections_.front())) {
    ShutDownSocket(connections_.front().descriptor, connections_.front().inode);
    connections_.erase(connections_.begin());
  }
  if (connections_.empty()) return std::nullopt;
  return std::chrono::ceil<std::chrono::milliseconds>(connections_.front().begun + limits_.http_request_timeout - now);
}

void HttpConnections::ForgetEnded() {
  std::erase_if(connections_, [](const Connection& one) { return InodeOf(one.descriptor) != one.inode; });
}

uint64_t HttpConnections::CountOf(const IpAddress& group) const {
  return static_cast<uint64_t>(std::ranges::count(connections_, group, &Connection::group));
}

void HttpConnections::ShutOldestOf(const IpAddress& group) {
  const auto oldest = std::ranges::find(connections_, group, &Connection::group);
  if (oldest == connections_.end()) return;
  ShutDownSocket(oldest->descriptor, oldest->inode);
  connections_.erase(oldest);
}

IpAddress HttpConnections::GroupWithMost() const {
  std::map<IpAddress, uint64_t> counts;
  for (const Connection& one : connections_) ++counts[one.group];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; });
  return most == counts.end() ? IpAddress{} : most->first;
}

}  // namespace arraybridge::daemon
