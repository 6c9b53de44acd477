// SPDX-License-Identifier: Apache-2.0
#include "client/shares/lease.h"

#include <utility>

#include "client/direct_channels/direct_consumer.h"

namespace arraybridge {

Lease::Lease(std::shared_ptr<ReleaseQueue> of, std::shared_ptr<DirectConsumer> direct, uint64_t bit)
    : SessionRelease(std::move(of)), id(0), direct_(std::move(direct)), bit_(bit) {
  releases->AddLease();
}

Lease::Lease(std::shared_ptr<ReleaseQueue> of, uint64_t lease) : SessionRelease(std::move(of)), id(lease) {
  releases->AddLease();
}

Lease::Lease(std::shared_ptr<ReleaseQueue> of, HazardSlot held) : Lease(std::move(of), 0) { hazard_ = std::move(held); }

Lease::~Lease() = default;

bool Lease::ReleaseAtOnce() noexcept {
  // The reclaimer's thread destroys a session whose last reference this is.
  if ((!hazard_ && !direct_) || private_mapping || Waits() || releases.use_count() == 1) return false;
  if (direct_) {
    if (direct_.use_count() == 1) return false;
    direct_->Return(bit_);
    releases->EndLease();
    return true;
  }
  withdrawn_ = hazard_.End();
  if (withdrawn_) return false;
  releases->EndLease();
  return true;
}

void Lease::ReleaseInto(codec::Release& release) {
  releases->EndLease();
  if (private_mapping) arena->ranges.Release(std::move(private_mapping));
  if (undrained()) return releases->KeepUndrained(arena);
  if (id != 0 && arena) arena->leases.Remove(offset, id);
  arena.reset();
  if (direct_) return direct_->Return(bit_);
  if (id == 0) {
    if (hazard_.End() || withdrawn_) release.hazards_cleared = true;
    return;
  }
  release.leases.push_back(id);
  // Another thread may have mapped the arena since.
  if (unmapped && !releases->read().Find(arena_id, arena_generation)) release.unmapped.push_back(arena_id);
}

}  // namespace arraybridge
