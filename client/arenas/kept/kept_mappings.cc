// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/kept/kept_mappings.h"

#include <utility>

#include "client/process/coarse_clock.h"

namespace arraybridge {

std::shared_ptr<Mapping> KeptMappings::Find(int32_t ordinal) {
  const MutexLock lock(mutex_);
  const auto found = kept_.find(ordinal);
  if (found == kept_.end()) return nullptr;
  found->second.used = CoarseNow();
  return found->second.mapping;
}

std::shared_ptr<Mapping> KeptMappings::Add(int32_t ordinal, const std::shared_ptr<Mapping>& made) {
  const MutexLock lock(mutex_);
  return kept_.try_emplace(ordinal, Kept{made, CoarseNow()}).first->second.mapping;
}

void KeptMappings::TakeIdle(std::chrono::steady_clock::time_point before, std::vector<std::shared_ptr<Mapping>>& idle) {
  const MutexLock lock(mutex_);
  for (auto next = kept_.begin(); next != kept_.end();) {
    Kept& kept = next->second;
    // Arrays get theirs from Find and Add, so none can get one while the lock is held.
    const bool in_use = kept.mapping.use_count() > 1;
    if (in_use) kept.used = CoarseNow();
    if (in_use || kept.used > before) {
      ++next;
      continue;
    }
    idle.push_back(std::move(kept.mapping));
    next = kept_.erase(next);
  }
}

}  // namespace arraybridge
