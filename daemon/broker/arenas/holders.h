// Who may have an arena mapped, where the kernel cannot be asked (GPU memory): a session from the moment it is given a
// handle until it says that it unmapped, or its process is dead. A session that merely ended proves nothing.
#pragma once

#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/broker/ids.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// A process that can be watched: its pidfd. Null: it cannot.
using ProcessFd = std::shared_ptr<const UniqueFd>;

// Not thread-safe.
class Holders {
 public:
  void Add(SessionId session, Access access, ProcessFd process) {
    const auto same = [&](const Holder& holder) { return holder.session == session && holder.access == access; };
    if (std::none_of(holders_.begin(), holders_.end(), same)) holders_.push_back({session, access, std::move(process)});
  }
  // It said so itself.
  void Drop(SessionId session, Access access) {
    std::erase_if(holders_, [&](const Holder& one) { return one.session == session && one.access == access; });
  }
  // Forgets those whose process is dead: then the driver has torn its mappings down. One system call a holder.
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

  // Who cannot be watched was not given what would need it.
  static bool IsDead(const ProcessFd& process) {
    if (process == nullptr || !process->valid()) return false;
    pollfd look{process->get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  }

  std::vector<Holder> holders_;
};

}  // namespace arraybridge
