#include "daemon/broker/channels/road_table.h"

#include <algorithm>

#include "proto/boundary/result.h"

namespace arraybridge {
uint64_t RoadTable::CountOf(uint32_t uid) const {
  const auto found = charged_.find(uid);
  return found == charged_.end() ? 0 : found->second;
}

void RoadTable::Charge(uint32_t uid) { ++charged_[uid]; }

void RoadTable::Uncharge(uint32_t uid) {
  const auto found = charged_.find(uid);
  AB_CHECK(found != charged_.end());
  if (--found->second == 0) charged_.erase(found);
}

void RoadTable::Add(const std::shared_ptr<ChannelRoad>& road) {
  sent_.emplace(std::pair(road->sender, road->road->number()), road);
  received_.emplace(road->receiver, road);
  Charge(road->sender_uid);
  if (road->receiver_uid != road->sender_uid) Charge(road->receiver_uid);
}

void RoadTable::End(ChannelRoad& road) {
  if (road.ended) return;
  road.ended = true;
  if (road.receiver_uid != road.sender_uid) Uncharge(road.receiver_uid);
}

void RoadTable::Remove(const ChannelRoad& road) {
  Uncharge(road.sender_uid);
  if (!road.ended && road.receiver_uid != road.sender_uid) Uncharge(road.receiver_uid);
  // The caller has one more: neither of these is the last.
  const auto [first, last] = received_.equal_range(road.receiver);
  const auto its = std::find_if(first, last, [&](const auto& each) { return each.second.get() == &road; });
  if (its != last) received_.erase(its);
  sent_.erase(std::pair(road.sender, road.road->number()));
}

std::shared_ptr<ChannelRoad> RoadTable::Find(SessionId sender, uint64_t number) const {
  const auto found = sent_.find(std::pair(sender, number));
  return found == sent_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<ChannelRoad>> RoadTable::Of(SessionId session) const {
  std::vector<std::shared_ptr<ChannelRoad>> its;
  auto sent = sent_.lower_bound(std::pair(session, uint64_t{0}));
  for (; sent != sent_.end() && sent->first.first == session; ++sent) its.push_back(sent->second);
  const auto [first, last] = received_.equal_range(session);
  for (auto received = first; received != last; ++received) {
    if (received->second->sender != session) its.push_back(received->second);  // else it is there already
  }
  return its;
}

uint64_t RoadTable::standing() const {
  uint64_t standing = 0;
  for (const auto& [key, road] : sent_) standing += road->ended ? 0 : road->road->standing();
  return standing;
}

}  // namespace arraybridge
