// SPDX-License-Identifier: Apache-2.0
// The HostRegistrations of this process, which are found by an address of their GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class HostRegistration;

// Thread-safe. No driver is called with its lock held.
class HostRegistrations {
 public:
  // Never destroyed, because arrays may outlive other static objects.
  static HostRegistrations& OfThisProcess();

  // The one in which the GPU's address `address` lies; null: there is none.
  std::shared_ptr<HostRegistration> FindAt(int32_t ordinal, const std::byte* address);
  void Add(int32_t ordinal, const std::byte* device, uint64_t size, const std::shared_ptr<HostRegistration>& made);
  // Counts one more. RESOURCE_EXHAUSTED: kRegistrationsMax.
  Status Begin();
  // One less: it is about to be unregistered. `device` is null if it was not added.
  void End(int32_t ordinal, const std::byte* device);
  uint64_t living() const;

 private:
  using Key = std::pair<int32_t, const std::byte*>;

  struct Known {
    std::weak_ptr<HostRegistration> registration;
    uint64_t size = 0;
  };

  mutable Mutex mutex_;
  std::map<Key, Known> known_ AB_GUARDED_BY(mutex_);
  uint64_t living_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge
