// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/direct_channel_table.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/objects/kept_ranges.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

uint64_t DirectChannelTable::CountOf(uint32_t uid) const {
  const auto found = charged_.find(uid);
  return found == charged_.end() ? 0 : found->second;
}

void DirectChannelTable::Charge(uint32_t uid) { ++charged_[uid]; }

void DirectChannelTable::Uncharge(uint32_t uid) {
  const auto found = charged_.find(uid);
  AB_CHECK(found != charged_.end());
  if (--found->second == 0) charged_.erase(found);
}

void DirectChannelTable::Add(const std::shared_ptr<DirectChannelRecord>& direct) {
  sent_.emplace(std::pair(direct->sender, direct->pages->number()), direct);
  received_.emplace(direct->receiver, direct);
  Charge(direct->sender_uid);
  if (direct->receiver_uid != direct->sender_uid) Charge(direct->receiver_uid);
}

void DirectChannelTable::End(DirectChannelRecord& direct) {
  if (direct.ended) return;
  direct.ended = true;
  if (direct.receiver_uid != direct.sender_uid) Uncharge(direct.receiver_uid);
}

void DirectChannelTable::Remove(const DirectChannelRecord& direct) {
  // Shares may own it longer, which no limit of direct channels counts.
  direct.kept->DropPages();
  Uncharge(direct.sender_uid);
  if (!direct.ended && direct.receiver_uid != direct.sender_uid) Uncharge(direct.receiver_uid);
  // The caller has one more: neither of these is the last.
  const auto [first, last] = received_.equal_range(direct.receiver);
  const auto its = std::find_if(first, last, [&](const auto& each) { return each.second.get() == &direct; });
  if (its != last) received_.erase(its);
  sent_.erase(std::pair(direct.sender, direct.pages->number()));
}

std::shared_ptr<DirectChannelRecord> DirectChannelTable::Find(SessionId sender, uint64_t number) const {
  const auto found = sent_.find(std::pair(sender, number));
  return found == sent_.end() ? nullptr : found->second;
}

std::shared_ptr<DirectChannelRecord> DirectChannelTable::FindReceived(SessionId receiver, uint64_t number) const {
  const auto [first, last] = received_.equal_range(receiver);
  const auto its = std::find_if(first, last, [&](const auto& each) { return each.second->pages->number() == number; });
  return its == last ? nullptr : its->second;
}

std::vector<std::shared_ptr<DirectChannelRecord>> DirectChannelTable::Of(SessionId session) const {
  std::vector<std::shared_ptr<DirectChannelRecord>> its;
  auto sent = sent_.lower_bound(std::pair(session, uint64_t{0}));
  for (; sent != sent_.end() && sent->first.first == session; ++sent) its.push_back(sent->second);
  const auto [first, last] = received_.equal_range(session);
  for (auto received = first; received != last; ++received) {
    if (received->second->sender != session) its.push_back(received->second);  // else it is there already
  }
  return its;
}

uint64_t DirectChannelTable::standing() const {
  uint64_t standing = 0;
  for (const auto& [key, direct] : sent_) standing += direct->ended ? 0 : direct->pages->standing();
  return standing;
}

}  // namespace arraybridge::daemon
