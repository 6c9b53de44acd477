// SPDX-License-Identifier: Apache-2.0
// Flags say without the broker's lock whether there is work at all: the service reads them on its fast paths.
#pragma once

#include <atomic>

namespace arraybridge::daemon {

// Thread-safe. The broker's tables write them with its lock held.
struct Flags {
  std::atomic<bool> sweep_wanted{false};     // a Sweep would find something that the last one has not seen
  std::atomic<bool> hazards_waiting{false};  // a share waits for hazard slots to be cleared
  std::atomic<bool> has_queues{false};       // a session has a queue
};

}  // namespace arraybridge::daemon
