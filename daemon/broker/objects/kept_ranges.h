// SPDX-License-Identifier: Apache-2.0
// KeptRanges are the ranges of a direct channel that forwards of its entries use (tables/forwards.h). A forward may use
// a range although the receiver has returned it, or has gone: the control block tells the sender not to use it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "daemon/memory/shared_pages/direct_channel.h"

namespace arraybridge::daemon {

struct Share;

// Owned by the record of its direct channel and by the shares that use its ranges. Not thread-safe: used and destroyed
// under the broker's lock.
class KeptRanges {
 public:
  KeptRanges() = default;
  explicit KeptRanges(std::shared_ptr<DirectChannel> pages) : pages_(std::move(pages)) {}
  KeptRanges(const KeptRanges&) = delete;
  KeptRanges& operator=(const KeptRanges&) = delete;

  // Null: its sender does not read the control block any more.
  const std::shared_ptr<DirectChannel>& pages() const { return pages_; }
  // Its record is removed.
  void DropPages() { pages_ = nullptr; }

  // A share that is the first of the entry with this bit, its root, comes or goes.
  void AddRoot(uint64_t bit, Share* root);
  void RestoreRoot(uint64_t bit, Share* root) { roots_.emplace(bit, root); }
  void RemoveRoot(uint64_t bit, Share* root);
  // One of the roots with this bit; null: there is none.
  Share* RootOf(uint64_t bit) const;
  bool HasOtherRoot(uint64_t bit, const Share& root) const;
  bool in_use() const { return !roots_.empty(); }
  // Writes the kept ranges into the control block, which the previous daemon made.
  void Restore();

 private:
  std::shared_ptr<DirectChannel> pages_;
  std::set<std::pair<uint64_t, Share*>> roots_;  // by return bit
};

}  // namespace arraybridge::daemon
