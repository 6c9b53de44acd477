// A DirectChannelTable is every direct channel that stands or that somebody still waits for, and to whom each is charged. One that stands
// is charged to the users of both its ends: each of them has opened an end, and can close it. One that has ended is its
// sender's alone, who says when it waits for nothing more. So nobody is charged for what only somebody else can end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/channels/direct_channel_record.h"
#include "daemon/broker/ids.h"

namespace arraybridge {

class DirectChannelTable {
 public:
  // Charged to this user; a direct channel between two ends of one user counts once.
  uint64_t CountOf(uint32_t uid) const;

  void Add(const std::shared_ptr<DirectChannelRecord>& direct);
  // It has ended: its receiver's user has no part in it any more. Idempotent. REQUIRES: it is in the table.
  void End(DirectChannelRecord& direct);
  void Remove(const DirectChannelRecord& direct);

  // By its number; null: this session sends on no such direct channel.
  std::shared_ptr<DirectChannelRecord> Find(SessionId sender, uint64_t number) const;
  // On which it sends or receives.
  std::vector<std::shared_ptr<DirectChannelRecord>> Of(SessionId session) const;
  // Shares that stand on those that have not ended.
  uint64_t standing() const;

 private:
  void Charge(uint32_t uid);
  void Uncharge(uint32_t uid);

  // By sender and number; the same ones by receiver.
  std::map<std::pair<SessionId, uint64_t>, std::shared_ptr<DirectChannelRecord>> sent_;
  std::multimap<SessionId, std::shared_ptr<DirectChannelRecord>> received_;
  std::unordered_map<uint32_t, uint64_t> charged_;  // by user
};

}  // namespace arraybridge
