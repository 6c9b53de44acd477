// SPDX-License-Identifier: Apache-2.0
// The HostRegistrations of this process, which are found by their arena, or by an address of their GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "client/arenas/arena_cache.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class HostRegistration;

// Thread-safe. No driver is called with its lock held.
class HostRegistrations {
 public:
  // Never destroyed, because arrays may outlive other static objects.
  static HostRegistrations& OfThisProcess();

  std::shared_ptr<HostRegistration> Find(int32_t ordinal, const ReadArena& arena);
  // The one with the GPU's address `address`; null: there is none.
  std::shared_ptr<HostRegistration> FindAt(int32_t ordinal, const std::byte* address);
  // The one to use: `made`, whose first address of the GPU is `device`, or that of another thread which was faster.
  std::shared_ptr<HostRegistration> Add(int32_t ordinal, const ReadArena& arena, const std::byte* device,
                                        const std::shared_ptr<HostRegistration>& made);
  // Counts one more. RESOURCE_EXHAUSTED: kRegistrationsMax.
  Status Begin();
  // One less: it is unregistered.
  void End();
  uint64_t living() const;

 private:
  // An arena that is registered is referred to, so no other one has its address meanwhile.
  using Key = std::pair<int32_t, const ReadArena*>;

  struct Known {
    std::weak_ptr<HostRegistration> registration;
    const std::byte* device = nullptr;
    uint64_t size = 0;
  };

  mutable Mutex mutex_;
  std::map<Key, Known> known_ AB_GUARDED_BY(mutex_);
  uint64_t living_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge
