// An Account is what one user has of everything that the limits called _per_uid bound, but for what has a table of its
// own (direct channels, watchers). Everything that a user can make grow is counted here, or there.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/broker/charge.h"
#include "daemon/broker/look_budget.h"

namespace arraybridge {

class Namespace;

// Descriptors that the daemon keeps open. Of a session: its socket and its process, and the two of its queue until it
// is mapped.
inline constexpr uint64_t kDescriptorsOfSession = 4;
inline constexpr uint64_t kDescriptorsOfArena = 2;
inline constexpr uint64_t kDescriptorsOfDirectChannel = 7;

struct Account {
  uint64_t sessions = 0;
  uint64_t leases = 0;  // of its sessions, those that have ended and are not cleared away yet included
  uint64_t shares = 0;  // that its sessions made, with and without a name
  uint64_t description_bytes = 0;
  uint64_t channel_ends = 0;
  uint64_t hold_pages = 0;
  uint64_t unmapped_hold_pages = 0;  // of these: the daemon keeps a descriptor of each
  uint64_t queues = 0;
  uint64_t catalogues = 0;  // of its own namespaces
  // Its memory, and the number of its arenas. What one user has is limited where it is asked for.
  const std::shared_ptr<Quota> memory = std::make_shared<Quota>(UINT64_MAX);
  // Of its own namespaces; outlives them.
  const std::shared_ptr<LookBudget> looks = std::make_shared<LookBudget>();
  Namespace* looked_at = nullptr;  // of these, the last one; compared alone, since it may be gone

  bool unused() const {
    return sessions == 0 && leases == 0 && shares == 0 && description_bytes == 0 && channel_ends == 0 &&
           hold_pages == 0 && queues == 0 && catalogues == 0 && memory->used() == 0 && looks->is_full();
  }
};

}  // namespace arraybridge
