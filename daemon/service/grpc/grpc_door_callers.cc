// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_door_callers.h"

#include <grpc/grpc_security_constants.h>

#include <utility>

#include "daemon/service/telemetry/log.h"

namespace arraybridge {
namespace {

Status Ended() { return Unavailable("the connection has ended"); }

std::vector<std::string> Said(const grpc::AuthContext& certificate, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : certificate.FindPropertyValues(property)) {
    values.emplace_back(value.data(), value.size());
  }
  return values;
}

}  // namespace

Result<Peer> LocalCallers::PeerOf(const grpc::CallbackServerContext& context) {
  auto peer = connections_.PeerOf(context.peer());
  if (!peer) return Ended();
  peer->door = Door::kGrpc;
  return *std::move(peer);
}

Result<uint32_t> LocalCallers::UserOf(const grpc::CallbackServerContext& context) {
  const auto uid = connections_.UidOf(context.peer());
  if (!uid) return Ended();
  return *uid;
}

Result<Peer> RemoteCallers::PeerOf(const grpc::CallbackServerContext& context) {
  const auto certificate = context.auth_context();
  if (certificate == nullptr || !certificate->IsPeerAuthenticated()) {
    return Status{Code::kUnauthenticated, "the connection has no client certificate", "NO_CERTIFICATE"};
  }
  Peer peer;
  auto subject = subjects_.NamesOf({Said(*certificate, GRPC_X509_CN_PROPERTY_NAME),
                                    Said(*certificate, GRPC_PEER_URI_PROPERTY_NAME),
                                    Said(*certificate, GRPC_PEER_DNS_PROPERTY_NAME)});
  if (!subject.ok()) return subject.status();
  peer.uid = peer.gid = kSharedByUsers;
  peer.door = Door::kTcp;
  peer.subject = *std::move(subject);
  // Checked first, so that the daemon stores only subjects that the configuration names.
  AB_RETURN_IF_ERROR(broker_.CheckMayCome(peer));
  const auto number = subjects_.NumberOf(peer.subject);
  if (!number.ok()) return number.status();
  peer.uid = *number;
  AB_RETURN_IF_ERROR(connections_.Identify(context.peer(), peer.uid));
  return peer;
}

Result<uint32_t> RemoteCallers::UserOf(const grpc::CallbackServerContext& context) {
  const auto peer = PeerOf(context);
  if (!peer.ok()) return peer.status();
  return peer->uid;
}

Status RemoteCallers::CheckMayAsk(const grpc::CallbackServerContext& context) {
  const auto peer = PeerOf(context);
  if (!peer.ok()) LogRefusal(context.peer(), peer.status());
  return peer.status();
}

void RemoteCallers::LogRefusal(std::string_view from, const Status& status) {
  const MutexLock lock(mutex_);
  const auto dropped = refusals_.Admit(Clock::now(), log::LinesPerSecond());
  if (!dropped) return;
  log::Warn("tcp: {} refused: {}{}", from, status.message(), *dropped == 0 ? "" : Concat(" (and ", *dropped, " more)"));
}

}  // namespace arraybridge
