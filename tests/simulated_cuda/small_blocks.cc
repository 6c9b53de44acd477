// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/small_blocks.h"

#include <algorithm>

namespace arraybridge::simulated {
namespace {

constexpr uint64_t kUnits = kGranularity / kUnit;

uint64_t UnitsOf(uint64_t size) { return (size + kUnit - 1) / kUnit; }

// The start of the first run of `count` free units, or kUnits.
uint64_t FirstFit(const std::vector<bool>& taken, uint64_t count) {
  uint64_t run = 0;
  for (uint64_t unit = 0; unit < kUnits; ++unit) {
    run = taken[unit] ? 0 : run + 1;
    if (run == count) return unit + 1 - count;
  }
  return kUnits;
}

}  // namespace

SmallBlocks::Place SmallBlocks::Allocate(AddressSpace& space, uint64_t size, int device, uint64_t* used,
                                         uint64_t memory) {
  const uint64_t count = UnitsOf(size);
  const auto take = [&](Shared& shared, uint64_t first) {
    std::fill_n(shared.taken.begin() + static_cast<std::ptrdiff_t>(first), count, true);
    shared.units += count;
    return Place{shared.block, shared.base, first * kUnit};
  };
  for (Shared& shared : shared_) {
    if (shared.block->device() != device) continue;
    const uint64_t first = FirstFit(shared.taken, count);
    if (first != kUnits) return take(shared, first);
  }
  if (*used > memory || kGranularity > memory - *used) return {};
  auto block = MemoryBlock::Create(kGranularity, device, BlockKind::kAlloc, 0, used);
  const uint64_t base = block == nullptr ? 0 : space.Reserve(kGranularity);
  if (base == 0) return {};
  shared_.push_back({std::move(block), base, std::vector<bool>(kUnits), 0});
  return take(shared_.back(), 0);
}

void SmallBlocks::Free(AddressSpace& space, uint64_t base, uint64_t offset, uint64_t size) {
  const auto found = std::find_if(shared_.begin(), shared_.end(), [&](const Shared& s) { return s.base == base; });
  if (found == shared_.end()) return;
  const uint64_t count = UnitsOf(size);
  std::fill_n(found->taken.begin() + static_cast<std::ptrdiff_t>(offset / kUnit), count, false);
  found->units -= count;
  if (found->units != 0) return;
  space.Free(found->base, kGranularity);
  shared_.erase(found);
}

}  // namespace arraybridge::simulated
