// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/placement_range.h"

#include <utility>

namespace arraybridge {

Placement::Range::Range(std::shared_ptr<ReleaseQueue> of, std::shared_ptr<WrittenArena> from, uint64_t at,
                        uint64_t bytes)
    : SessionRelease(std::move(of)), arena(std::move(from)), offset(at), size(bytes) {}

bool Placement::Range::ReleaseAtOnce() noexcept {
  std::atomic<bool>* const left = left_direct.load(std::memory_order_acquire);
  // The reclaimer's thread destroys a session whose last reference this is.
  if (left == nullptr || Waits() || releases.use_count() == 1) return false;
  left->store(true, std::memory_order_release);
  return true;
}

void Placement::Range::ReleaseInto(codec::Release& /*release*/) {
  if (whole != nullptr) return;
  struct InUse {
    std::shared_ptr<WrittenArena> arena;
    std::vector<Queued> queued;
  };
  if (undrained()) return releases->KeepUndrained(std::make_shared<InUse>(InUse{arena, std::exchange(queued, {})}));
  // Drops this reference to the mapping first, because another thread unmaps an arena that it finds empty.
  const std::shared_ptr<WrittenArena> gone = std::move(arena);
  if (std::atomic<bool>* const left = left_direct.load(std::memory_order_acquire)) {
    return left->store(true, std::memory_order_release);
  }
  releases->written().ReleaseLocal(*gone, offset);
}

}  // namespace arraybridge
