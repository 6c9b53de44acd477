// SPDX-License-Identifier: Apache-2.0
// The Mover moves the bytes of shares between memory and files, one share in each call. Each move is in the order that
// a daemon may be killed between any two steps: the journal names the valid place, and Begin removes the other one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/verbs/tiers/tiers.h"
#include "daemon/mover/share_file.h"
#include "daemon/mover/tier_directory.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe: of two calls that move one share at the same time, the later one finds the result of the earlier one.
// Every method but `directory` is slow.
class Mover {
 public:
  // Both outlive it.
  Mover(Tiers& tiers, std::shared_ptr<TierDirectory> directory) : tiers_(tiers), directory_(std::move(directory)) {}

  TierDirectory& directory() const { return *directory_; }

  struct Found {
    std::vector<std::string> lost;     // shares whose file is gone or damaged
    std::vector<std::string> unkept;   // shares in memory whose durable file is gone
    std::vector<std::string> strange;  // files that the broker has not written: left alone
    uint64_t removed = 0;              // files that no share has any more
    uint64_t imported = 0;             // durable shares of an earlier broker
  };
  // Takes up the files that the previous daemon left. REQUIRES: called before any other method, and before clients are
  // served.
  Found Begin();

  // FAILED_PRECONDITION: SHARE_IN_USE, NOT_MOVABLE, PINNED. RESOURCE_EXHAUSTED: DISK_FULL. UNAVAILABLE: TIER_OFF,
  // DISK_FAILED.
  Status MoveOut(const SharePlace& place);
  // RESOURCE_EXHAUSTED: no memory. DATA_LOSS: the file is damaged, and set aside; the share is lost.
  Status MoveIn(const SharePlace& place);
  // Errors as of MoveOut.
  Status Keep(const SharePlace& place);
  // Errors as of Keep, but only for a durable share, whose file is written anew, because it states the rank.
  Status Pin(const SharePlace& place, Rank rank);
  // DATA_LOSS: the file is damaged; a share whose bytes are in no other place is lost. FAILED_PRECONDITION, NO_FILE.
  Status Verify(const SharePlace& place);

 private:
  // Files that no share has: imports durable ones of an earlier broker.
  void SortOut(const std::vector<std::string>& names, Found* found);
  void ImportAll(const std::vector<std::pair<uint64_t, std::string>>& durable, Found* found);
  Status Import(const OpenedFile& opened, const std::string& name);
  Status WriteDurable(const SharePlace& place);
  // OK: the file of the share is there, and is its own. DATA_LOSS: it was set aside, and the share, whose bytes are in
  // memory, has none any more.
  Status CheckFile(const TieredRow& row);
  // Writes the bytes to a new file.
  Result<Stored> Written(const Tiers::Looked& looked, bool durable);
  // The status of an access to the file of a share whose bytes are nowhere else, which is lost if the file is damaged.
  Status Judged(const TieredRow& row, Status status);

  Tiers& tiers_;
  const std::shared_ptr<TierDirectory> directory_;
};

}  // namespace arraybridge::daemon
