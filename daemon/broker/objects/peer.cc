// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/peer.h"

#include <algorithm>

namespace arraybridge::daemon {
namespace {

void AppendName(std::string& list, std::string_view name) {
  if (!list.empty()) list += ", ";
  list += name;
}

}  // namespace

std::string Peer::who() const { return Concat("user ", uid); }

bool Peer::Opens(HandleKind kind) const { return std::ranges::find(kinds, kind) != kinds.end(); }

Status Peer::CannotOpen(std::string_view what, std::string_view shared_as) const {
  std::string own;
  for (const HandleKind kind : kinds) AppendName(own, NameOf(kind));
  return FailedPrecondition(what, " is shared as ", shared_as, "; this session opens ", own,
                            refused.empty() ? "" : "; ", refused)
      .Because("KIND_NOT_OFFERED");
}

bool Peer::Sees(const Device& device) const {
  return gpus.empty() || device.uuid.empty() || std::ranges::find(gpus, device.uuid) != gpus.end();
}

Status Peer::CannotSee(std::string_view what, const Device& device) const {
  std::string seen;
  for (const std::string& gpu : gpus) AppendName(seen, gpu);
  return FailedPrecondition(what, " lies on GPU ", device.uuid, ", which this session does not see; it sees ", seen)
      .Because("DEVICE_NOT_VISIBLE");
}

Status Peer::CannotOpen(std::string_view what, HandleKind kind, const Device& device) const {
  return Opens(kind) ? CannotSee(what, device) : CannotOpen(what, NameOf(kind));
}

}  // namespace arraybridge::daemon
