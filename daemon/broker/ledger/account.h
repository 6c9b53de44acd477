// SPDX-License-Identifier: Apache-2.0
// An Account counts one user's use of everything that a limit called _per_uid bounds, except what has its own table
// (direct channels, watchers). Everything that a user can make grow is counted here or there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/broker/ledger/charge.h"
#include "daemon/broker/ledger/look_budget.h"
#include "proto/boundary/handle.h"

namespace arraybridge::daemon {

class Namespace;

// Descriptors that the daemon keeps open. A session has its socket and its pidfd, and the two descriptors of its queue
// until the queue is mapped.
inline constexpr uint64_t kDescriptorsOfSession = 4;
inline constexpr uint64_t kDescriptorsOfArena = 2;
inline constexpr uint64_t kDescriptorsOfDirectChannel = 7;
// Entries in the store for the next daemon. Everything else has one.
inline constexpr uint64_t kEntriesOfQueue = 2;
inline constexpr uint64_t kEntriesOfDirectChannel = 5;

// Sizes of objects in the daemon's memory, and in the kernel's on their behalf, rounded up. Limits.object_bytes_per_uid
// bounds a user's sum, descriptions, notes and histories included.
namespace object_bytes {
inline constexpr uint64_t kLease = 256;
inline constexpr uint64_t kClaim = 1 << 10;
inline constexpr uint64_t kShare = 1 << 10;
inline constexpr uint64_t kArena = 2 << 10;
inline constexpr uint64_t kChannelEnd = 1 << 10;
inline constexpr uint64_t kHazardPage = 8 << 10;
inline constexpr uint64_t kQueue = 80 << 10;
inline constexpr uint64_t kDirectChannel = 320 << 10;  // of the largest capacity
}  // namespace object_bytes

// The shares of one other user that a user leases in one namespace, on one device. Each share counts once.
struct LeasedBytes {
  const Namespace* ns = nullptr;
  Device device;
  uint32_t maker_uid = 0;
  uint64_t bytes = 0;
  uint64_t shares = 0;
  uint64_t withdrawn = 0;  // of these shares
};

struct Account {
  uint64_t sessions = 0;
  uint64_t leases = 0;  // of its sessions, including ended ones that are not cleared yet
  uint64_t shares = 0;  // made by its sessions, with and without a name
  uint64_t description_bytes = 0;
  uint64_t claims = 0;
  uint64_t channel_ends = 0;
  uint64_t hazard_pages = 0;
  uint64_t unmapped_hazard_pages = 0;  // of these; the daemon keeps a descriptor of each
  uint64_t queues = 0;
  uint64_t catalogues = 0;          // of its own namespaces
  std::vector<LeasedBytes> leased;  // a row has at least one share
  // The bytes and number of its arenas. The limit is checked where they are allocated.
  const std::shared_ptr<Quota> memory = std::make_shared<Quota>(UINT64_MAX);
  // The time for looks through this user's own namespaces; outlives them.
  const std::shared_ptr<LookBudget> looks = std::make_shared<LookBudget>();
  Namespace* looked_at = nullptr;  // the namespace looked at last; only compared, since it may be gone

  uint64_t object_bytes() const {
    return leases * object_bytes::kLease + shares * object_bytes::kShare + description_bytes +
           memory->charges() * object_bytes::kArena + channel_ends * object_bytes::kChannelEnd +
           hazard_pages * object_bytes::kHazardPage + queues * object_bytes::kQueue + claims * object_bytes::kClaim;
  }
  bool unused() const {
    return sessions == 0 && leases == 0 && shares == 0 && description_bytes == 0 && claims == 0 && channel_ends == 0 &&
           hazard_pages == 0 && queues == 0 && catalogues == 0 && leased.empty() && memory->used() == 0 &&
           looks->is_full();
  }
};

}  // namespace arraybridge::daemon
