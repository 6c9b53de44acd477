#include "client/arena_cache.h"

#include "client/coarse_clock.h"

namespace arraybridge {

std::shared_ptr<ReadArena> ArenaCache::Find(uint64_t arena, uint64_t generation) {
  MutexLock lock(mutex_);
  const auto found = entries_.find({arena, generation});
  if (found == entries_.end()) return nullptr;
  found->second.used = CoarseNow();
  return found->second.arena;
}

std::shared_ptr<ReadArena> ArenaCache::Find(uint64_t arena) {
  MutexLock lock(mutex_);
  const auto found = entries_.lower_bound({arena, 0});
  if (found == entries_.end() || found->first.first != arena) return nullptr;
  found->second.used = CoarseNow();
  return found->second.arena;
}

std::shared_ptr<ReadArena> ArenaCache::Add(const std::shared_ptr<ReadArena>& arena) {
  const std::pair key{arena->handle.arena, arena->handle.generation};
  MutexLock lock(mutex_);
  return entries_.try_emplace(key, Entry{arena, CoarseNow()}).first->second.arena;
}

std::vector<uint64_t> ArenaCache::TakeIdle(Instant before, bool devices_too) {
  std::vector<std::shared_ptr<ReadArena>> dead;  // unmapped outside the lock
  std::vector<uint64_t> ids;
  MutexLock lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    // Nobody else can take a reference while the lock is held: arrays get theirs from Find and Add.
    const bool in_use = entry->second.arena.use_count() > 1;
    if (in_use) entry->second.used = CoarseNow();
    const bool here = devices_too || entry->second.arena->handle.device.type == kDeviceCpu;
    if (in_use || !here || entry->second.used > before) {
      ++entry;
      continue;
    }
    ids.push_back(entry->first.first);
    dead.push_back(std::move(entry->second.arena));
    entry = entries_.erase(entry);
  }
  return ids;
}

uint64_t ArenaCache::count() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace arraybridge
