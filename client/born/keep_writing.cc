// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/born/keep_writing.h>

#include "client/arenas/placement_range.h"
#include "client/born/arena.h"
#include "client/pages/page_scan.h"
#include "client/process/fork_guard.h"

namespace arraybridge {

namespace {

// The kernel lets go of a huge page at once.
bool IsMappedHuge(const Placement::Range& range) {
  const uint64_t small_max = range.size / PageBytes() / 8;
  const auto small = PageScan{.lacked = PageScan::kHuge, .pages_max = small_max + 1}.Count(range.data(), range.size);
  return small && *small <= small_max;
}

}  // namespace

bool KeepWriting(const Placement& placement) {
  if (placement.forward() != nullptr) return true;
  Placement::Range& range = *placement.range();
  const NoForkHere no_fork;  // and no other thread here
  return !range.published.load() && !IsParted(range) && IsMappedHuge(range) && Part(range);
}

}  // namespace arraybridge
