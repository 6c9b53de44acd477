// SPDX-License-Identifier: Apache-2.0
#include "client/one_memory/host_registrations.h"

#include <arraybridge/one_memory/one_memory.h>

namespace arraybridge {

HostRegistrations& HostRegistrations::OfThisProcess() {
  static auto* const registrations = new HostRegistrations;
  return *registrations;
}

std::shared_ptr<HostRegistration> HostRegistrations::FindAt(int32_t ordinal, const std::byte* address) {
  const MutexLock lock(mutex_);
  auto next = known_.upper_bound({ordinal, address});
  if (next == known_.begin() || (--next)->first.first != ordinal) return nullptr;
  if (address >= next->first.second + next->second.size) return nullptr;
  return next->second.registration.lock();
}

void HostRegistrations::Add(int32_t ordinal, const std::byte* device, uint64_t size,
                            const std::shared_ptr<HostRegistration>& made) {
  const MutexLock lock(mutex_);
  known_[{ordinal, device}] = {made, size};
}

Status HostRegistrations::Begin() {
  const MutexLock lock(mutex_);
  if (living_ < kRegistrationsMax) return (++living_, Ok());
  return ResourceExhausted(living_, " arenas of host memory are registered with GPUs, and no more than ",
                           kRegistrationsMax, " can be: drop arrays of some, or read a copy on the GPU (mapped=False)")
      .Because("TOO_MANY_REGISTRATIONS");
}

void HostRegistrations::End(int32_t ordinal, const std::byte* device) {
  const MutexLock lock(mutex_);
  --living_;
  if (device != nullptr) known_.erase({ordinal, device});
}

uint64_t HostRegistrations::living() const {
  const MutexLock lock(mutex_);
  return living_;
}

}  // namespace arraybridge
