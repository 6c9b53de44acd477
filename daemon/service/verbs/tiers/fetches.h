// SPDX-License-Identifier: Apache-2.0
// Fetches are the shares in files that acquires wait for. They are read in turn among the owners of their namespaces,
// so that a user who asks for many shares does not delay another user's one.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/broker/verbs/tiers/tiers.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class Fetches {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Fetch {
    SharePlace place;
    std::string name;
    TimePoint until;  // the acquires have given up
  };
  // A share that is there already is wanted until then. Not OK: it cannot be read, as the waits are told just now.
  Status Add(Fetch fetch) AB_EXCLUDES(mutex_);
  // The next one in turn; then call PutBack, or Fail and Forget.
  std::optional<Fetch> Next() AB_EXCLUDES(mutex_);
  // It waits for memory, behind the others of its owner.
  void PutBack(const SharePlace& place) AB_EXCLUDES(mutex_);
  void Fail(const SharePlace& place, Status why) AB_EXCLUDES(mutex_);
  void Forget(const SharePlace& place) AB_EXCLUDES(mutex_);
  bool empty() const AB_EXCLUDES(mutex_);

 private:
  struct Wanted {
    std::string name;
    TimePoint until;
    Status failed;
  };

  mutable Mutex mutex_;
  std::map<SharePlace, Wanted> all_ AB_GUARDED_BY(mutex_);
  std::map<uint32_t, std::deque<SharePlace>> lines_ AB_GUARDED_BY(mutex_);  // by owner; none is empty
  uint32_t last_owner_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge::daemon
