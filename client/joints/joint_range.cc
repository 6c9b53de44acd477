// SPDX-License-Identifier: Apache-2.0
#include "client/joints/joint_range.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace arraybridge {
namespace {

using JointPart = std::shared_ptr<Placement::Range>;

bool AreApart(const JointPart& one, const JointPart& next) {
  return one->arena != next->arena || one->offset + one->size != next->offset;
}

}  // namespace

// Defined here, because arena.h does not know what a range is.
bool WrittenArenas::Join(std::span<const std::shared_ptr<Placement::Range>> parts,
                         const std::shared_ptr<Placement::Range>& joint) {
  const MutexLock lock(mutex_);
  for (const auto& part : parts) {
    const auto [entry, its] = At(joint->arena->id, part->offset);
    if (entry == nullptr || its->second.range.lock() != part || its->second.broker || part->published.load()) {
      return false;
    }
  }
  auto& ranges = entries_.at(joint->arena->id).ranges;
  const auto first = ranges.find(joint->offset);
  ranges.erase(std::next(first), ranges.lower_bound(joint->offset + joint->size));
  first->second.size = joint->size;
  first->second.range = joint;
  for (const auto& part : parts) part->whole = joint, part->published.store(true);
  return true;
}

std::shared_ptr<Placement::Range> JointRangeOf(std::vector<JointPart> parts, Reclaimer& reclaimer) {
  if (parts.size() < 2) return parts.empty() ? nullptr : std::move(parts.front());
  const auto is_used_by_gpus = [](const JointPart& part) {
    return part->arena->device.type != kDeviceCpu || part->arena->pinned;
  };
  if (std::ranges::any_of(parts, is_used_by_gpus)) return nullptr;
  std::ranges::sort(parts, {}, [](const JointPart& part) { return part->offset; });
  if (std::ranges::adjacent_find(parts, AreApart) != parts.end()) {
    for (const JointPart& part : parts) part->handed_out.store(true);
    return nullptr;
  }
  const JointPart& first = parts.front();
  const uint64_t size = parts.back()->offset + parts.back()->size - first->offset;
  auto joint = reclaimer.Adopt(std::make_unique<Placement::Range>(first->releases, first->arena, first->offset, size));
  if (!joint.ok()) return nullptr;
  (*joint)->least.store(std::numeric_limits<uint64_t>::max());
  if (!first->releases->written().Join(parts, *joint)) {
    (*joint)->whole = first;  // which alone gives the bytes back
    return nullptr;
  }
  return *std::move(joint);
}

}  // namespace arraybridge
