// SPDX-License-Identifier: Apache-2.0
// SessionCuts end sessions from inside the service. Each door registers the function that ends one of its sessions.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/snapshot.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// Thread-safe.
class SessionCuts {
 public:
  using Handler = std::function<void(SessionId, std::string_view why)>;

  // The handler is called on any thread for sessions of either door, and must not block. Empty: the door is gone.
  void Set(Door door, Handler cut) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    by_door_[static_cast<size_t>(door)] = std::move(cut);
  }
  void Cut(SessionId session, std::string_view why) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (const auto& cut : by_door_) {
      if (cut) cut(session, why);
    }
  }

 private:
  Mutex mutex_;
  std::array<Handler, 2> by_door_ AB_GUARDED_BY(mutex_);  // kLifeline, kGrpc
};

}  // namespace arraybridge::daemon
