// SPDX-License-Identifier: Apache-2.0
// A Lease keeps one share readable in this process, together with the memory that contains it. It is a lease of the
// broker, a hazard slot, or a return bit in a direct channel.
#pragma once

#include <cstdint>
#include <memory>

#include "client/arenas/arena_cache.h"
#include "client/arenas/session_release.h"
#include "client/catalogue/hazard_table.h"

namespace arraybridge {

class DirectConsumer;

class Lease final : public SessionRelease {
 public:
  Lease(std::shared_ptr<ReleaseQueue> of, uint64_t lease);
  Lease(std::shared_ptr<ReleaseQueue> of, HazardSlot held);
  Lease(std::shared_ptr<ReleaseQueue> of, std::shared_ptr<DirectConsumer> direct, uint64_t bit);
  ~Lease() override;
  // Dropping the last array ends a hazard slot or a return bit at once, without a message. It does not if there is
  // memory to unmap, or if the broker waits for it.
  bool ReleaseAtOnce() noexcept override;
  bool Waits() const override { return arena && arena->handle.device.type != kDeviceCpu; }
  void ReleaseInto(codec::Release& release) override;
  Mapping& Waited() override { return *arena->shared; }

  const uint64_t id;  // 0: a hazard slot or a return bit
  std::shared_ptr<ReadArena> arena;
  bool unmapped = false;  // the share's arena could not be mapped; reported after the lease
  uint64_t arena_id = 0;
  uint64_t arena_generation = 0;
  uint64_t offset = 0;                              // of the share, in the arena
  uint64_t size = 0;                                // of the share
  std::unique_ptr<PrivateMapping> private_mapping;  // of the share only

 private:
  HazardSlot hazard_;
  const std::shared_ptr<DirectConsumer> direct_;
  const uint64_t bit_ = 0;  // in the return bitmap of the direct channel
  bool withdrawn_ = false;  // the hazard slot has ended, and the broker must be notified
};

}  // namespace arraybridge
