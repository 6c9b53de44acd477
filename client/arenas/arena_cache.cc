// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/arena_cache.h"

#include <algorithm>

#include "client/process/coarse_clock.h"
#include "proto/boundary/byte_range.h"

namespace arraybridge {

void LeasedRanges::Add(uint64_t offset, uint64_t size, uint64_t lease) {
  const MutexLock lock(mutex_);
  sizes_.emplace(std::pair(offset, lease), size);
}

void LeasedRanges::Remove(uint64_t offset, uint64_t lease) {
  const MutexLock lock(mutex_);
  sizes_.erase({offset, lease});
}

std::optional<LeasedRanges::Leased> LeasedRanges::Find(uint64_t offset, uint64_t bytes) const {
  const MutexLock lock(mutex_);
  auto next = sizes_.upper_bound({offset, UINT64_MAX});
  for (int looks = 0; next != sizes_.begin() && looks < kLooksMax; ++looks) {
    const auto& [key, size] = *--next;
    if (ByteRange{key.first, size}.Contains({offset, bytes})) return Leased{key.second, key.first, size};
  }
  return std::nullopt;
}

void ArenaCache::Touch(Entry& entry) {
  entry.used = CoarseNow();
  entry.turn = ++turns_;
}

std::shared_ptr<ReadArena> ArenaCache::Find(uint64_t arena, uint64_t generation) {
  MutexLock lock(mutex_);
  const auto found = entries_.find({arena, generation});
  if (found == entries_.end()) return nullptr;
  Touch(found->second);
  return found->second.arena;
}

std::shared_ptr<ReadArena> ArenaCache::Find(uint64_t arena) {
  MutexLock lock(mutex_);
  const auto found = entries_.lower_bound({arena, 0});
  if (found == entries_.end() || found->first.first != arena) return nullptr;
  Touch(found->second);
  return found->second.arena;
}

std::shared_ptr<ReadArena> ArenaCache::Add(const std::shared_ptr<ReadArena>& arena) {
  const std::pair key{arena->handle.arena, arena->handle.generation};
  MutexLock lock(mutex_);
  const auto [entry, fresh] = entries_.try_emplace(key, Entry{.arena = arena, .used = {}});
  if (fresh) {
    bytes_ += arena->handle.arena_size;
    if (arena->handle.kind == HandleKind::kMemfd) {
      mapped_->Add(arena->shared->data(), {arena->handle.arena_size, arena, 0, false});
      arena->ranges.FindIn(mapped_, arena);
    }
  }
  Touch(entry->second);
  return entry->second.arena;
}

bool ArenaCache::full() const {
  MutexLock lock(mutex_);
  return OverBounds();
}

ArenaCache::Entries::iterator ArenaCache::Take(Entries::iterator entry, std::vector<std::shared_ptr<ReadArena>>& dead,
                                               std::vector<uint64_t>& ids) {
  bytes_ -= entry->second.arena->handle.arena_size;
  ids.push_back(entry->first.first);
  // All arrays that used the arena were given back after the device had finished.
  entry->second.arena->shared->NoteIdle();
  if (entry->second.arena->handle.kind == HandleKind::kMemfd) mapped_->Remove(entry->second.arena->shared->data());
  dead.push_back(std::move(entry->second.arena));
  return entries_.erase(entry);
}

std::vector<uint64_t> ArenaCache::TakeIdle(Instant before) {
  std::vector<std::shared_ptr<ReadArena>> dead;  // unmapped outside the lock
  std::vector<std::shared_ptr<Mapping>> idle;    // the same
  std::vector<uint64_t> ids;
  MutexLock lock(mutex_);
  std::vector<Entries::iterator> unused;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry->second.arena->kept.TakeIdle(before, idle);
    // No array can get a reference while the lock is held, because arrays get theirs from Find and Add. FindAt makes
    // one for a moment, and finds no share there.
    const bool in_use = entry->second.arena.use_count() > 1;
    if (in_use) Touch(entry->second);
    if (!in_use && entry->second.used <= before) {
      entry = Take(entry, dead, ids);
      continue;
    }
    if (!in_use) unused.push_back(entry);
    ++entry;
  }
  if (!OverBounds()) return ids;
  std::ranges::sort(unused, {}, [](const auto& entry) { return entry->second.turn; });
  for (auto next = unused.begin(); next != unused.end() && OverBounds(); ++next) Take(*next, dead, ids);
  return ids;
}

uint64_t ArenaCache::count() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace arraybridge
