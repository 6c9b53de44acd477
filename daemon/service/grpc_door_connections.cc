#include "daemon/service/grpc_door_connections.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <utility>

#include "daemon/service/listener.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

// 0 if `descriptor` is not open. Inodes of sockets are numbered in order of creation, so a reused descriptor has
// another inode.
uint64_t InodeOf(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 ? facts.st_ino : 0;
}

std::string Secret() {
  std::array<uint8_t, 16> bytes{};
  AB_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

bool GrpcDoorConnections::Admit(int descriptor, const Peer& peer) {
  MutexLock lock(mutex_);
  if (const auto old = connections_.find(descriptor); old != connections_.end()) Forget(old);
  if (of_uid_[peer.uid] >= connections_per_uid_) ForgetEnded(peer.uid);
  if (of_uid_[peer.uid] >= connections_per_uid_) return false;
  connections_.emplace(descriptor, Connection{InodeOf(descriptor), peer, Secret()});
  ++of_uid_[peer.uid];
  return true;
}

const GrpcDoorConnections::Connection* GrpcDoorConnections::Find(std::string_view name, int* descriptor) const {
  constexpr std::string_view prefix = "fd:";
  if (!name.starts_with(prefix)) return nullptr;
  name.remove_prefix(prefix.size());
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), *descriptor);
  if (parsed.ec != std::errc{} || parsed.ptr != name.data() + name.size()) return nullptr;
  const auto found = connections_.find(*descriptor);
  if (found == connections_.end() || InodeOf(*descriptor) != found->second.inode) return nullptr;
  return &found->second;
}

std::optional<Peer> GrpcDoorConnections::PeerOf(std::string_view name) const {
  int descriptor = -1;
  MutexLock lock(mutex_);
  const Connection* const found = Find(name, &descriptor);
  if (found == nullptr) return std::nullopt;
  Peer peer = found->peer;
  peer.process = ProcessOf(descriptor, peer.process_id);
  return peer;
}

std::optional<GrpcDoorConnections::Known> GrpcDoorConnections::KnownAs(std::string_view name) const {
  int descriptor = -1;
  MutexLock lock(mutex_);
  const Connection* const found = Find(name, &descriptor);
  if (found == nullptr) return std::nullopt;
  return Known{found->peer, found->secret};
}

std::optional<uint32_t> GrpcDoorConnections::UidOf(std::string_view name) const {
  int descriptor = -1;
  MutexLock lock(mutex_);
  const Connection* const found = Find(name, &descriptor);
  if (found == nullptr) return std::nullopt;
  return found->peer.uid;
}

void GrpcDoorConnections::Forget(std::unordered_map<int, Connection>::iterator gone) {
  const auto count = of_uid_.find(gone->second.peer.uid);
  if (--count->second == 0) of_uid_.erase(count);
  connections_.erase(gone);
}

void GrpcDoorConnections::ForgetEnded(uint32_t uid) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto current = it++;  // erasing it does not invalidate other iterators
    if (current->second.peer.uid == uid && InodeOf(current->first) != current->second.inode) Forget(current);
  }
}

}  // namespace arraybridge
