// SPDX-License-Identifier: Apache-2.0
// A forward is a share without a range of its own: it publishes bytes of its root once more. The root keeps its range
// until its last forward is gone, whatever becomes of its name and its maker. A forward of a forward has the same root.
//
// An entry of a direct channel is no share. Its first forward is a root that owns no range: the bytes stay the
// sender's, which reads in the control block of the direct channel that they are kept.
//
// Forwards decides what a Publish may forward, and counts it.
#pragma once

#include <memory>

#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/objects/share.h"
#include "daemon/broker/tables/direct_channel_table.h"
#include "daemon/broker/tables/hazards.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The bytes of the call must be copied. Clients do that by themselves.
Status NotForwarded(std::string_view why);

// Not thread-safe: the broker's lock guards it.
class Forwards {
 public:
  // All arguments outlive the table.
  Forwards(const DirectChannelTable& direct_channels, Hazards& hazards)
      : direct_channels_(direct_channels), hazards_(hazards) {}

  // Where the bytes of a forward come from. One of the two is set.
  struct Origin {
    Share* root = nullptr;
    std::shared_ptr<KeptRanges> ranges;
  };
  // FAILED_PRECONDITION, NOT_FORWARDED. REQUIRES: `call` has a source, and names `arena`, in whose namespace the
  // session may publish.
  Result<Origin> Find(const Session& session, const PublishCall& call, const Arena& arena) const;
  // REQUIRES: Find has returned the origin, and nothing has changed since. `maker`: of the forward.
  void Add(Session& maker, Share& share, Origin origin, const ShareSource& source);
  // The forward of a share, from the previous daemon. `maker`: null if it is gone.
  static void Restore(Session* maker, Share& share, Share& root);
  // The forward of an entry of a direct channel, likewise.
  static void RestoreKept(Session* maker, Share& share, std::shared_ptr<KeptRanges> ranges, uint64_t bit);
  // The share is destroyed: it uses its bytes no longer. Returns its root, which may be let go now; null: the share was
  // a root. REQUIRES: Add.
  static Share* Remove(Share& share);

  uint64_t total = 0;  // since the start

 private:
  static void RestoreMaker(Session* maker, Share& share);
  Result<Share*> FindHeld(const Session& session, const ShareSource& source, const Namespace& ns) const;
  Result<Origin> FindReceived(const Session& session, const PublishCall& call, const Arena& arena) const;

  const DirectChannelTable& direct_channels_;
  Hazards& hazards_;
};

}  // namespace arraybridge::daemon
