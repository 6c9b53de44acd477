// SPDX-License-Identifier: Apache-2.0
// A DirectChannelTable has all direct channels that stand, or whose sender still waits for ranges, and the users to
// whom they are charged. One that stands is charged to the users of both ends: each of them has opened an end, and can
// close it. One that has ended is charged to its sender's user alone: the sender says when it waits for no range any
// more. So no user is charged for a direct channel that only another user can end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/direct_channel_record.h"

namespace arraybridge::daemon {

class DirectChannelTable {
 public:
  // Direct channels charged to this user; one between two ends of one user counts once.
  uint64_t CountOf(uint32_t uid) const;

  void Add(const std::shared_ptr<DirectChannelRecord>& direct);
  // It has ended: it is not charged to its receiver's user any more. Idempotent. REQUIRES: it is in the table.
  void End(DirectChannelRecord& direct);
  void Remove(const DirectChannelRecord& direct);

  // By its number; null: this session is the sender of no such direct channel.
  std::shared_ptr<DirectChannelRecord> Find(SessionId sender, uint64_t number) const;
  // By its number; null: this session is the receiver of no such direct channel.
  std::shared_ptr<DirectChannelRecord> FindReceived(SessionId receiver, uint64_t number) const;
  // The direct channels of which this session is an end.
  std::vector<std::shared_ptr<DirectChannelRecord>> Of(SessionId session) const;
  // Entries that stand in all that have not ended.
  uint64_t standing() const;

 private:
  void Charge(uint32_t uid);
  void Uncharge(uint32_t uid);

  // By sender and number; the same ones by receiver.
  std::map<std::pair<SessionId, uint64_t>, std::shared_ptr<DirectChannelRecord>> sent_;
  std::multimap<SessionId, std::shared_ptr<DirectChannelRecord>> received_;
  std::unordered_map<uint32_t, uint64_t> charged_;  // by user
};

}  // namespace arraybridge::daemon
