#include "daemon/broker/road_table.h"

#include <algorithm>

#include "proto/boundary/result.h"

namespace arraybridge {
namespace {

// Erases the one entry of this key that is this road.
template <class Roads>
void Erase(Roads& roads, const typename Roads::key_type& key, const ChannelRoad& road) {
  const auto [first, last] = roads.equal_range(key);
  const auto found = std::find_if(first, last, [&](const auto& each) { return each.second.get() == &road; });
  if (found != last) roads.erase(found);
}

}  // namespace

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
  sent_.emplace(std::pair(road->sender, road->sending), road);
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
  Erase(received_, road.receiver, road);
  Erase(sent_, std::pair(road.sender, road.sending), road);
}

// Entries of one key stand in the order in which they came.
std::shared_ptr<ChannelRoad> RoadTable::OldestOf(SessionId sender, ChannelEndId sending) const {
  const auto found = sent_.lower_bound(std::pair(sender, sending));
  return found == sent_.end() || found->first != std::pair(sender, sending) ? nullptr : found->second;
}

std::vector<std::shared_ptr<ChannelRoad>> RoadTable::Of(SessionId session) const {
  std::vector<std::shared_ptr<ChannelRoad>> its;
  auto sent = sent_.lower_bound(std::pair(session, ChannelEndId{}));
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
