// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/carver.h"

#include <iterator>
#include <limits>
#include <utility>

#include "proto/boundary/result.h"

namespace arraybridge {
namespace {

constexpr size_t kRecentMax = 16;

}  // namespace

Carver::Carver(uint64_t size) {
  const uint64_t whole = size - size % kArrayAlignment;
  if (whole > 0) Add(0, whole);
  recent_.reserve(kRecentMax);
}

uint64_t Carver::Granules(uint64_t bytes) {
  if (bytes == 0) return kArrayAlignment;
  if (bytes > std::numeric_limits<uint64_t>::max() - kArrayAlignment) return 0;
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

std::vector<Carver::Gap>::iterator Carver::FindRecent(uint64_t bytes) {
  for (auto gap = recent_.end(); gap != recent_.begin();) {
    if ((--gap)->bytes == bytes) return gap;
  }
  return recent_.end();
}

// A gap that cannot be merged for lack of memory stays in the list.
void Carver::Settle() {
  while (!recent_.empty()) {
    Merge(recent_.back().offset, recent_.back().bytes);
    recent_.pop_back();
  }
}

std::optional<uint64_t> Carver::BestGap(uint64_t bytes) {
  if (FindRecent(bytes) != recent_.end()) return bytes;
  Settle();
  const auto found = by_size_.lower_bound({bytes, 0});
  if (found == by_size_.end()) return std::nullopt;
  return found->first;
}

std::optional<uint64_t> Carver::Carve(uint64_t bytes) {
  if (const auto recent = FindRecent(bytes); recent != recent_.end()) {
    const uint64_t offset = recent->offset;
    recent_.erase(recent);
    carved_ += bytes;
    return offset;
  }
  Settle();
  const auto found = by_size_.lower_bound({bytes, 0});
  if (found == by_size_.end()) return std::nullopt;
  const auto [gap, offset] = *found;
  carved_ += bytes;
  if (gap == bytes) {
    Remove(gaps_.find(offset));
  } else {
    CutFront(gaps_.find(offset), bytes);
  }
  return offset;
}

void Carver::Release(uint64_t offset, uint64_t bytes) {
  AB_CHECK(bytes <= carved_);
  if (recent_.size() == kRecentMax) Settle();
  carved_ -= bytes;
  recent_.push_back({offset, bytes});
}

// Makes the nodes of the merged gap before it removes any: without memory nothing changes.
void Carver::Merge(uint64_t offset, uint64_t bytes) {
  const auto next = gaps_.lower_bound(offset);
  AB_CHECK(next == gaps_.end() || next->first >= offset + bytes);
  const auto before = next == gaps_.begin() ? gaps_.end() : std::prev(next);
  AB_CHECK(before == gaps_.end() || before->first + before->second <= offset);
  const bool joins_next = next != gaps_.end() && next->first == offset + bytes;
  const bool joins_before = before != gaps_.end() && before->first + before->second == offset;
  const uint64_t first = joins_before ? before->first : offset;
  const uint64_t all = bytes + (joins_next ? next->second : 0) + (joins_before ? before->second : 0);
  std::map<uint64_t, uint64_t> gap{{first, all}};
  std::set<std::pair<uint64_t, uint64_t>> sized{{all, first}};
  if (joins_next) Remove(next);
  if (joins_before) Remove(before);
  gaps_.insert(gap.extract(gap.begin()));
  by_size_.insert(sized.extract(sized.begin()));
}

void Carver::Add(uint64_t offset, uint64_t bytes) {
  gaps_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

// The rest of the gap keeps its position in `gaps_` and its nodes in both trees, so no memory is allocated.
void Carver::CutFront(std::map<uint64_t, uint64_t>::iterator gap, uint64_t bytes) {
  auto sized = by_size_.extract({gap->second, gap->first});
  sized.value() = {gap->second - bytes, gap->first + bytes};
  by_size_.insert(std::move(sized));
  const auto next = std::next(gap);
  auto node = gaps_.extract(gap);
  node.key() += bytes;
  node.mapped() -= bytes;
  gaps_.insert(next, std::move(node));
}

void Carver::Remove(std::map<uint64_t, uint64_t>::iterator gap) {
  by_size_.erase({gap->second, gap->first});
  gaps_.erase(gap);
}

}  // namespace arraybridge
