// SPDX-License-Identifier: Apache-2.0
// BornTallies are the tallies of a BornHeap, and how much of each the broker knows.
#pragma once

#include <memory>
#include <vector>

#include <arraybridge/born_tally.h>

#include "client/session/session.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class BornTallies {
 public:
  // REQUIRES: a place in born::kFrameworks.
  std::shared_ptr<BornTally> Add(size_t framework) AB_EXCLUDES(mutex_);
  // Writes the new counts into the session's pages, and forgets the tallies that nothing counts in any more. Never
  // waits for the broker. Counts that cannot be told now are told by a later call.
  void Tell(Session& session) AB_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<BornTally> tally;
    BornTally::Counts told;
  };

  // False: the session cannot be told now.
  static bool Tell(Entry& entry, Session& session);

  Mutex mutex_;
  std::vector<Entry> entries_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
