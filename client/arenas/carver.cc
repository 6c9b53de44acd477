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

void Carver::Settle() {
  for (const Gap& gap : recent_) Merge(gap.offset, gap.bytes);
  recent_.clear();
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

void Carver::GiveBack(uint64_t offset, uint64_t bytes) {
  AB_CHECK(bytes <= carved_);
  carved_ -= bytes;
  if (recent_.size() == kRecentMax) Settle();
  recent_.push_back({offset, bytes});
}

void Carver::Merge(uint64_t offset, uint64_t bytes) {
  auto next = gaps_.lower_bound(offset);
  AB_CHECK(next == gaps_.end() || next->first >= offset + bytes);
  if (next != gaps_.end() && next->first == offset + bytes) {
    bytes += next->second;
    Remove(next);
  }
  const auto after = gaps_.lower_bound(offset);
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    AB_CHECK(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      Remove(before);
    }
  }
  Add(offset, bytes);
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
