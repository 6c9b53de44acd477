// SPDX-License-Identifier: Apache-2.0
// Decides which kinds of handle a session is offered. The session must state that it can open the kind, and the kind
// must work between the two processes. A session that lists GPUs is offered only these. Every refusal has a reason.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/broker/broker.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// The kernel and PID namespace of this process.
struct RunsAt {
  std::string boot_id;         // of the kernel
  uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0: unknown
  uint32_t uid = 0;

  static RunsAt Here();
};

// Fills in the peer's `kinds`, `refused` and `gpus`. REQUIRES: the peer's `process` is set, if it can be determined.
void OfferHandles(const wire::ClientCapabilities& capabilities, const RunsAt& here, Peer& peer);

// Fills in the peer's `events`. A driver finds an interprocess event by its producer's process id and in /dev/shm, so
// both processes must share the PID namespace and /dev/shm.
void OfferEvents(const wire::ClientCapabilities& capabilities, Peer& peer);

}  // namespace arraybridge::daemon
