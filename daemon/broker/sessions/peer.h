// A Peer is what the broker knows of a client process: its identity, its rights, and the memory that it can open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/arenas/holders.h"
#include "daemon/broker/snapshot.h"
#include "daemon/config/config.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// The process at the other end of a connection. Its identity is the socket; the pid is for display.
struct Peer {
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t process_id = 0;
  std::string client;
  Door door = Door::kLifeline;
  std::vector<HandleKind> kinds = {HandleKind::kMemfd};  // that it can open and may be offered
  std::string refused;                                   // why it is not offered other kinds that it could open
  std::vector<std::string> gpus;  // UUIDs of the GPUs that it says it sees; empty: it has not said
  ProcessFd process;              // null where the kernel has no pidfd for it
  std::string events;  // two that say the same open each other's interprocess events; empty: it opens nobody's
  std::vector<uint32_t> groups;  // supplementary ones
  std::string token;             // that it stated, which may open namespaces to it; empty: none. A secret

  // The names in its certificate, of a peer that came over TCP. `uid` is the number that stands for these names then.
  std::vector<std::string> subject;

  Credentials credentials() const { return {uid, gid, groups, token, subject}; }
  bool is_remote() const { return !subject.empty(); }
  // For messages: "user 1000", "subject 'worker-7'".
  std::string who() const;
  bool Opens(HandleKind kind) const;
  bool Sees(const Device& device) const;
  // Whether it may be handed memory of that kind on that device.
  bool MayOpen(HandleKind kind, const Device& device) const { return Opens(kind) && Sees(device); }
  // FAILED_PRECONDITION: KIND_NOT_OFFERED says what it can open, and why not more; DEVICE_NOT_VISIBLE which GPUs it
  // sees. `what` names the memory. REQUIRES: it may not.
  Status CannotOpen(std::string_view what, HandleKind kind, const Device& device) const;
  Status CannotSee(std::string_view what, const Device& device) const;
  Status CannotOpen(std::string_view what, std::string_view shared_as) const;
};

}  // namespace arraybridge
