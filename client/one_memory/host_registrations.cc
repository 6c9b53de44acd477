// SPDX-License-Identifier: Apache-2.0
#include "client/one_memory/host_registrations.h"

#include <arraybridge/one_memory/one_memory.h>

#include <vector>

#include "client/one_memory/host_registration.h"

namespace arraybridge {

HostRegistrations& HostRegistrations::OfThisProcess() {
  static auto* const registrations = new HostRegistrations;
  return *registrations;
}

std::shared_ptr<HostRegistration> HostRegistrations::Find(int32_t ordinal, const ReadArena& arena) {
  const MutexLock lock(mutex_);
  const auto found = known_.find({ordinal, &arena});
  return found == known_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<HostRegistration> HostRegistrations::FindAt(int32_t ordinal, const std::byte* address) {
  std::vector<std::shared_ptr<HostRegistration>> others;  // dropped without the lock
  const MutexLock lock(mutex_);
  for (auto next = known_.lower_bound({ordinal, nullptr}); next != known_.end(); ++next) {
    auto registration = next->first.first == ordinal ? next->second.lock() : nullptr;
    if (registration == nullptr) continue;
    if (address >= registration->data() && address < registration->data() + registration->size()) return registration;
    others.push_back(std::move(registration));
  }
  return nullptr;
}

std::shared_ptr<HostRegistration> HostRegistrations::Add(int32_t ordinal, const ReadArena& arena,
                                                         const std::shared_ptr<HostRegistration>& made) {
  const MutexLock lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = known_[{ordinal, &arena}];
  if (auto faster = entry.lock()) return faster;
  entry = made;
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
