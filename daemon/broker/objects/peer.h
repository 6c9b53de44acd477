// SPDX-License-Identifier: Apache-2.0
// A Peer is the broker's knowledge of a client process: its identity, its rights, and the memory that it can open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/holders.h"
#include "daemon/config/config.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The process at the other end of a connection. The socket identifies it; the pid is for display.
struct Peer {
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t process_id = 0;
  std::string client;
  Door door = Door::kLifeline;
  std::vector<HandleKind> kinds = {HandleKind::kMemfd};  // kinds of handle that it can open and may be offered
  std::string refused;                                   // why it is not offered other kinds that it could open
  std::vector<std::string> gpus;  // UUIDs of the GPUs that it sees, as it reported; empty: it has not reported
  ProcessFd process;              // its pidfd; null if the kernel has none for it
  // peers with the same value can open each other's interprocess events; empty: it can open no events
  std::string events;
  std::vector<uint32_t> groups;  // supplementary groups
  std::string token;             // a secret that may give access to namespaces; empty: none

  Credentials credentials() const { return {uid, gid, groups, token}; }
  // For messages: "user 1000".
  std::string who() const;
  bool Opens(HandleKind kind) const;
  bool Sees(const Device& device) const;
  // Whether the peer may receive memory of that kind on that device.
  bool MayOpen(HandleKind kind, const Device& device) const { return Opens(kind) && Sees(device); }
  // FAILED_PRECONDITION. KIND_NOT_OFFERED names the kinds that the peer can open and why it has no more;
  // DEVICE_NOT_VISIBLE names the GPUs that it sees. `what` names the memory. REQUIRES: the peer may not open it.
  Status CannotOpen(std::string_view what, HandleKind kind, const Device& device) const;
  Status CannotSee(std::string_view what, const Device& device) const;
  Status CannotOpen(std::string_view what, std::string_view shared_as) const;
};

}  // namespace arraybridge::daemon
