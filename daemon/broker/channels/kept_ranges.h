// SPDX-License-Identifier: Apache-2.0
// KeptRanges are the ranges of a direct channel that may be used although its receiver may have returned them, or has
// gone: by shares that forward entries of it (shares/forwards.h), and by the receivers of other direct channels into
// which its receiver forwards entries. As long as one of them may, the control block tells the sender not to use the
// range again.
//
// The receiver of a direct channel, while it lives, returns no entry that it has forwarded before the next receiver
// has. When it ends, the broker does not know which entries these are: it keeps them all until the next receiver has no
// entry any more.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "daemon/broker/ids.h"
#include "daemon/memory/shared_pages/direct_channel.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct DirectChannelRecord;
struct Share;

// The record of its direct channel owns it, and the shares and KeptRanges that use its ranges. Not thread-safe, and
// destroyed under the broker's lock, too.
class KeptRanges {
 public:
  KeptRanges() = default;
  KeptRanges(std::shared_ptr<DirectChannel> pages, SessionId sender) : pages_(std::move(pages)), sender_(sender) {}
  KeptRanges(const KeptRanges&) = delete;
  KeptRanges& operator=(const KeptRanges&) = delete;

  // Null: its sender does not read the control block any more.
  const std::shared_ptr<DirectChannel>& pages() const { return pages_; }
  // Its record is removed.
  void DropPages();

  // A share that is the first of the entry with this bit, its root, comes or goes.
  void AddRoot(uint64_t bit, Share* root);
  void RestoreRoot(uint64_t bit, Share* root) { roots_.emplace(bit, root); }
  void RemoveRoot(uint64_t bit, Share* root);
  // One of the roots with this bit; null: there is none.
  Share* RootOf(uint64_t bit) const;
  bool HasOtherRoot(uint64_t bit, const Share& root) const;
  // Its sender waits for ranges that its receiver does not return any more.
  bool in_use() const { return !roots_.empty() || orphans_ > 0; }
  // Says in the control block what is kept, of one that the previous daemon made.
  void Restore() { Keep(); }

  static constexpr size_t kSourcesMost = 4;
  static constexpr unsigned kRankMost = 4;  // direct channels that an entry passes through, one after another
  // From now on entries of `source` are forwarded here. FAILED_PRECONDITION, NOT_FORWARDED: there are too many sources,
  // or the entries pass through too many direct channels, or come here again. Idempotent.
  static Status Link(const std::shared_ptr<DirectChannelRecord>& into, const std::shared_ptr<KeptRanges>& source);
  // The same of one that the previous daemon had linked. To be called kRankMost times for each, because ranks follow
  // those of the sources.
  static void RestoreLink(const std::shared_ptr<DirectChannelRecord>& into, const std::shared_ptr<KeptRanges>& source);
  bool forwards() const { return !sources_.empty(); }
  std::vector<uint64_t> sources() const;
  // The receiver of a source has ended: the broker's previous process may have been killed before it orphaned this.
  bool MissesReceiver() const;
  // Entries may lie in an arena of this session: it is the sender here, or of a source.
  bool MayComeFrom(SessionId session) const;
  // The direct channels that stand and into which entries from here are forwarded, also over others.
  void AddForwarded(std::vector<std::shared_ptr<DirectChannelRecord>>& all) const;
  // Its sender, who forwards, has ended. Until this goes, no range of the sources is used again.
  void Orphan();

 private:
  void Keep();
  // This, a source, or a source of one.
  bool ComesFrom(const KeptRanges& other) const;
  // If nobody waits for its ranges or uses one, its sources are not kept for it any more. Otherwise, when the broker
  // ends with sessions that go on reading, nothing changes.
  void ReleaseSourcesIfUnused();

  std::shared_ptr<DirectChannel> pages_;
  SessionId sender_{};
  std::set<std::pair<uint64_t, Share*>> roots_;  // by return bit
  std::vector<std::shared_ptr<KeptRanges>> sources_;
  // The direct channels of which this is a source; their KeptRanges may live longer than their records.
  struct Onward {
    std::weak_ptr<DirectChannelRecord> record;
    std::weak_ptr<KeptRanges> kept;
  };
  std::vector<Onward> forwarded_;
  unsigned rank_ = 0;  // above that of each source
  bool orphan_ = false;
  uint64_t orphans_ = 0;  // of those of which this is a source
};

}  // namespace arraybridge
