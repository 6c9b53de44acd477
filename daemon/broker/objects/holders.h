// SPDX-License-Identifier: Apache-2.0
// Holders tracks the processes that may have an arena mapped, for memory that the kernel cannot answer for (GPU
// memory). A session is a holder from the moment it receives a handle until it reports that it unmapped the arena, or
// its process is dead. The end of a session alone does not end its mapping.
#pragma once

#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// The pidfd of a process that can be watched; null: it cannot be watched.
using ProcessFd = std::shared_ptr<const UniqueFd>;

// Not thread-safe.
class Holders {
 public:
  void Add(SessionId session, Access access, ProcessFd process) {
    const auto same = [&](const Holder& holder) { return holder.session == session && holder.access == access; };
    if (std::none_of(holders_.begin(), holders_.end(), same)) holders_.push_back({session, access, std::move(process)});
  }
  // The session reported that it unmapped the arena.
  void Drop(SessionId session, Access access) {
    std::erase_if(holders_, [&](const Holder& one) { return one.session == session && one.access == access; });
  }
  // Drops the holders whose process is dead: the driver has removed their mappings. One system call per holder.
  void DropDead() {
    std::erase_if(holders_, [](const Holder& holder) { return IsDead(holder.process); });
  }
  bool empty() const { return holders_.empty(); }

 private:
  struct Holder {
    SessionId session;
    Access access;
    ProcessFd process;
  };

  // A process without a pidfd never received a handle that needs one.
  static bool IsDead(const ProcessFd& process) {
    if (process == nullptr || !process->valid()) return false;
    pollfd look{process->get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  }

  std::vector<Holder> holders_;
};

}  // namespace arraybridge::daemon
