// SPDX-License-Identifier: Apache-2.0
#include "client/born/blocks.h"

#include <algorithm>
#include <utility>

#include "client/born/arena.h"

namespace arraybridge {

namespace {

uint64_t LeastIn(uint64_t bytes, bool whole) { return whole ? bytes - BornPage() + 1 : 0; }

}  // namespace

BornBlocks::BornBlocks(uint64_t recent_bytes_max) : recent_bytes_max_(recent_bytes_max) {
  recent_.reserve(kRecentMax + 1);
}

std::byte* BornBlocks::TakeRecent(uint64_t bytes, bool whole) {
  for (auto node = recent_.end(); node != recent_.begin();) {
    if ((--node)->mapped()->size != bytes) continue;
    std::byte* const data = node->mapped()->data();
    node->mapped()->least.store(LeastIn(bytes, whole));
    lent_.insert(std::move(*node));
    recent_.erase(node);
    lent_bytes_ += bytes;
    recent_bytes_ -= bytes;
    return data;
  }
  return nullptr;
}

std::byte* BornBlocks::Add(std::shared_ptr<Placement::Range> range, bool whole) {
  std::byte* const data = range->data();
  const uint64_t bytes = range->size;
  range->least.store(LeastIn(bytes, whole));
  lent_.emplace(data, std::move(range));
  lent_bytes_ += bytes;
  return data;
}

bool BornBlocks::Return(const std::byte* data, Dead& dead) {
  const auto found = lent_.find(data);
  if (found == lent_.end()) return false;
  Node node = lent_.extract(found);
  lent_bytes_ -= node.mapped()->size;
  // One reference: no put of it is under way. Handed out: it lay apart from others of its tree; carved anew it may not.
  const auto& range = node.mapped();
  if (IsParted(*range) && !Join(*range)) {
    stuck_.push_back(std::move(node.mapped()));
    return true;
  }
  if (range->published.load() || range->handed_out.load() || range.use_count() > 1 || IsAbandoned(*range)) {
    dead.push_back(std::move(node.mapped()));
  } else {
    Keep(std::move(node), dead);
  }
  return true;
}

void BornBlocks::Keep(Node node, Dead& dead) {
  recent_bytes_ += node.mapped()->size;
  recent_.push_back(std::move(node));
  while (recent_.size() > 1 && (recent_.size() > kRecentMax || recent_bytes_ > recent_bytes_max_)) {
    const uint64_t oldest = recent_.front().mapped()->size;
    dead.push_back(std::move(recent_.front().mapped()));
    recent_.erase(recent_.begin());
    recent_bytes_ -= oldest;
  }
}

const Placement::Range* BornBlocks::Find(const std::byte* data) const {
  const auto found = lent_.find(data);
  return found == lent_.end() ? nullptr : found->second.get();
}

void BornBlocks::MakeLentPrivate() noexcept {
  for (auto& [data, range] : lent_) MakePrivate(*range);
}

void BornBlocks::TakeAllRecent(const WrittenArena* of, Dead& dead) {
  std::erase_if(recent_, [&](Node& node) {
    if (of != nullptr && node.mapped()->arena.get() != of) return false;
    recent_bytes_ -= node.mapped()->size;
    dead.push_back(std::move(node.mapped()));
    return true;
  });
}

}  // namespace arraybridge
