// SPDX-License-Identifier: Apache-2.0
#include "client/one_memory/host_registrations.h"

#include <arraybridge/one_memory/one_memory.h>

namespace arraybridge {

HostRegistrations& HostRegistrations::OfThisProcess() {
  static auto* const registrations = new HostRegistrations;
  return *registrations;
}

std::shared_ptr<HostRegistration> HostRegistrations::Find(int32_t ordinal, const ReadArena& arena) {
  const MutexLock lock(mutex_);
  const auto found = known_.find({ordinal, &arena});
  return found == known_.end() ? nullptr : found->second.registration.lock();
}

std::shared_ptr<HostRegistration> HostRegistrations::FindAt(int32_t ordinal, const std::byte* address) {
  const MutexLock lock(mutex_);
  for (const auto& [key, known] : known_) {
    const bool inside = key.first == ordinal && address >= known.device && address < known.device + known.size;
    // An address of one that has ended may be another one's.
    if (auto living = inside ? known.registration.lock() : nullptr) return living;
  }
  return nullptr;
}

std::shared_ptr<HostRegistration> HostRegistrations::Add(int32_t ordinal, const ReadArena& arena,
                                                         const std::byte* device,
                                                         const std::shared_ptr<HostRegistration>& made) {
  const MutexLock lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.registration.expired(); });
  Known& known = known_[{ordinal, &arena}];
  if (auto faster = known.registration.lock()) return faster;
  known = {made, device, arena.handle.arena_size};
  return made;
}

Status HostRegistrations::Begin() {
  const MutexLock lock(mutex_);
  if (living_ < kRegistrationsMax) return (++living_, Ok());
  return ResourceExhausted(living_, " arenas of host memory are registered with GPUs, and no more than ",
                           kRegistrationsMax, " can be: drop arrays of some, or read a copy on the GPU (mapped=False)")
      .Because("TOO_MANY_REGISTRATIONS");
}

void HostRegistrations::End() {
  const MutexLock lock(mutex_);
  --living_;
}

uint64_t HostRegistrations::living() const {
  const MutexLock lock(mutex_);
  return living_;
}

}  // namespace arraybridge
