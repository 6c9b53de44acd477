// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_door_connections.h"

#include <sys/random.h>

#include <array>
#include <charconv>
#include <utility>

#include "daemon/service/grpc/grpc_sockets.h"
#include "daemon/service/system/accepted_socket.h"
#include "daemon/service/system/listener.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

std::string Secret() {
  std::array<uint8_t, 16> bytes{};
  AB_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

bool GrpcDoorConnections::Admit(int descriptor, const Peer& peer) {
  MutexLock lock(mutex_);
  if (const auto old = connections_.find(descriptor); old != connections_.end()) Forget(old);
  if (of_uid_[peer.uid] >= limits_.connections_per_uid()) ForgetEnded(peer.uid);
  if (of_uid_[peer.uid] >= limits_.connections_per_uid()) return false;
  const auto user = UserOf(peer.uid);
  if (user->ChargeResets(1) != nullptr) return false;  // a client could otherwise reset calls by new connections
  if (!MeterSocket(descriptor, std::make_unique<GrpcMeter>(limits_, user))) return false;
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

std::shared_ptr<GrpcUser> GrpcDoorConnections::UserOf(uint32_t uid) {
  const auto found = users_.find(uid);
  if (found != users_.end()) return found->second;
  std::erase_if(users_, [](const auto& one) { return one.second.use_count() == 1 && one.second->IsBlank(); });
  return users_.emplace(uid, std::make_shared<GrpcUser>(uid, limits_)).first->second;
}

void GrpcDoorConnections::ForgetEnded(uint32_t uid) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto current = it++;  // erasing it does not invalidate other iterators
    if (current->second.peer.uid == uid && InodeOf(current->first) != current->second.inode) Forget(current);
  }
}

}  // namespace arraybridge::daemon
