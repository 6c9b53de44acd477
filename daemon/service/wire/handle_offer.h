// Which kinds of handle a session is offered: those that it says it opens and that will work between its process and
// this one; of GPU memory, that of the GPUs which it says it sees, if it says so. What is refused is refused with a
// reason, never silently.
#pragma once

#include <cstdint>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"

namespace arraybridge {

// Where this process runs.
struct RunsAt {
  std::string boot_id;         // of the kernel
  uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0: unknown
  uint32_t uid = 0;

  static RunsAt Here();
};

// Fills the peer's `kinds`, `refused` and `gpus`. REQUIRES: its `process` is known, if it ever will be.
void OfferHandles(const v1::ClientCapabilities& capabilities, const RunsAt& here, Peer& peer);

// Fills the peer's `events`: a driver finds an interprocess event through its maker's process id and /dev/shm, so both
// processes must have the same of both.
void OfferEvents(const v1::ClientCapabilities& capabilities, Peer& peer);

}  // namespace arraybridge
