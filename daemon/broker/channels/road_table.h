// A RoadTable is every road that stands or that somebody still waits for, and to whom each is charged. One that stands
// is charged to the users of both its ends: each of them has opened an end, and can close it. One that has ended is its
// sender's alone, who says when it waits for nothing more. So nobody is charged for what only somebody else can end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/channels/channel_road.h"
#include "daemon/broker/ids.h"

namespace arraybridge {

class RoadTable {
 public:
  // Charged to this user; a road between two ends of one user counts once.
  uint64_t CountOf(uint32_t uid) const;

  void Add(const std::shared_ptr<ChannelRoad>& road);
  // It has ended: its receiver's user has no part in it any more. Idempotent. REQUIRES: it is in the table.
  void End(ChannelRoad& road);
  void Remove(const ChannelRoad& road);

  // By its number; null: this session sends on no such road.
  std::shared_ptr<ChannelRoad> Find(SessionId sender, uint64_t number) const;
  // On which it sends or receives.
  std::vector<std::shared_ptr<ChannelRoad>> Of(SessionId session) const;
  // Shares that stand on those that have not ended.
  uint64_t standing() const;

 private:
  void Charge(uint32_t uid);
  void Uncharge(uint32_t uid);

  // By sender and number; the same ones by receiver.
  std::map<std::pair<SessionId, uint64_t>, std::shared_ptr<ChannelRoad>> sent_;
  std::multimap<SessionId, std::shared_ptr<ChannelRoad>> received_;
  std::unordered_map<uint32_t, uint64_t> charged_;  // by user
};

}  // namespace arraybridge
