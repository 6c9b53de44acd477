// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/arena.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "client/process/coarse_clock.h"

namespace arraybridge {
namespace {

// Both are local devices, so the id is sufficient.
bool Same(const Device& one, const Device& other) { return one.type == other.type && one.id == other.id; }

// The first arena of a session is small, because an arena is given back as a whole. Each further one doubles it.
constexpr uint64_t kFirstArena = 2ull << 20;
constexpr uint64_t kLargestArena = 64ull << 20;

}  // namespace

WrittenArena::WrittenArena(const Handle& handle, std::unique_ptr<Mapping> mapping, bool own_arena, bool is_pinned)
    : id(handle.arena),
      generation(handle.generation),
      size(handle.arena_size),
      device(handle.device),
      kind(handle.kind),
      own(own_arena),
      pinned(is_pinned),
      mapping_(std::move(mapping)),
      data_(mapping_->data()) {
  JoinForkGuard(this);
}

WrittenArena::~WrittenArena() { Unmap(); }

void WrittenArena::Unmap() {
  LeaveForkGuard(this);
  mapping_.reset();
}

void WrittenArena::AfterForkInChild() noexcept { mapping_->Detach(); }

std::optional<WrittenArenas::Carving> WrittenArenas::Carve(const Device& device, uint64_t bytes, Holders holders,
                                                           uint64_t continued, bool pinned) {
  MutexLock lock(mutex_);
  Entry* best = nullptr;
  uint64_t best_gap = 0;
  const auto look_at = [&](Entry& entry) {
    if (entry.arena->own || entry.arena->pinned != pinned || !Same(entry.arena->device, device)) return;
    if (entry.arena->kind == HandleKind::kCudaIpc && entry.arena->continued != continued) return;
    const auto gap = entry.carver.BestGap(bytes);
    if (!gap || (bytes >= large_ && *gap / 2 > bytes)) return;
    if (best != nullptr && *gap >= best_gap) return;
    best = &entry;
    best_gap = *gap;
  };
  // Large and small ranges use separate arenas, because a small range would pin a large arena. A small range is carved
  // at the same cost however many large ones there are.
  if (bytes < large_) {
    for (Entry* const entry : of_small_) look_at(*entry);
  } else {
    for (auto& [id, entry] : entries_) {
      if (entry.large) look_at(entry);
    }
  }
  if (best == nullptr) return std::nullopt;
  return CarveFrom(*best, bytes, std::move(holders));
}

std::optional<WrittenArenas::Carving> WrittenArenas::CarveIn(const WrittenArena& arena, uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(arena.id);
  if (entry == entries_.end() || !entry->second.carver.BestGap(bytes)) return std::nullopt;
  return CarveFrom(entry->second, bytes, {.range = {}});
}

// Whatever needs memory comes first, so that an arena is in all containers or in none.
WrittenArenas::Carving WrittenArenas::Add(std::shared_ptr<WrittenArena> arena, uint64_t bytes) {
  MutexLock lock(mutex_);
  const uint64_t id = arena->id;
  const auto address = std::bit_cast<uintptr_t>(arena->data());
  const uint64_t size = arena->size;
  std::map<uint64_t, Entry> made;
  Entry& entry = made[id];
  entry.large = bytes >= large_;
  entry.carver = Carver(size);
  std::map<uintptr_t, Entry*> at{{address, &entry}};
  of_small_.reserve(of_small_.size() + 1);
  entry.arena = std::move(arena);
  if (const auto before = entries_.find(id); before != entries_.end()) {
    Remove(before->second);
    entries_.erase(before);
  }
  entries_.insert(made.extract(made.begin()));
  if (!entry.large && !entry.arena->own) of_small_.push_back(&entry);
  span_.Note(entry.arena->data(), size);
  by_address_.erase(address);
  by_address_.insert(at.extract(at.begin()));
  return CarveFrom(entry, bytes, {.range = {}});
}

void WrittenArenas::RemoveAddress(const Entry& entry) {
  const auto at = by_address_.find(std::bit_cast<uintptr_t>(entry.arena->data()));
  if (at != by_address_.end() && at->second == &entry) by_address_.erase(at);
}

// The arena, whose entry the caller erases.
std::shared_ptr<WrittenArena> WrittenArenas::Remove(Entry& entry) {
  std::erase(of_small_, &entry);
  RemoveAddress(entry);
  return std::move(entry.arena);
}

void WrittenArenas::Unmap(WrittenArena& arena) {
  {
    const MutexLock lock(mutex_);
    const auto entry = entries_.find(arena.id);
    if (entry != entries_.end() && entry->second.arena.get() == &arena) RemoveAddress(entry->second);
  }
  arena.Unmap();
}

WrittenArenas::Carving WrittenArenas::CarveFrom(Entry& entry, uint64_t bytes, Holders holders) {
  if (entry.spare.empty()) {  // before the carver counts the range, because there may be no memory
    std::map<uint64_t, Holders> one;
    one[0];
    entry.spare = one.extract(one.begin());
  }
  const auto offset = entry.carver.Carve(bytes);
  AB_CHECK(offset.has_value());
  holders.size = bytes;
  entry.spare.key() = *offset;
  entry.spare.mapped() = std::move(holders);
  entry.ranges.insert(std::move(entry.spare));
  entry.used = CoarseNow();
  return {entry.arena, *offset};
}

uint64_t WrittenArenas::NextSize(const Device& device, uint64_t bytes, bool own, bool pinned) const {
  if (own || bytes >= large_) return bytes;
  MutexLock lock(mutex_);
  uint64_t next = kFirstArena;
  for (const Entry* const entry : of_small_) {
    const bool alike = entry->arena->pinned == pinned && Same(entry->arena->device, device);
    if (alike && next < kLargestArena) next *= 2;
  }
  return std::max(next, bytes);
}

std::pair<WrittenArenas::Entry*, std::map<uint64_t, WrittenArenas::Holders>::iterator> WrittenArenas::At(
    uint64_t arena, uint64_t offset) {
  const auto entry = entries_.find(arena);
  if (entry == entries_.end()) return {};
  const auto range = entry->second.ranges.find(offset);
  return {range == entry->second.ranges.end() ? nullptr : &entry->second, range};
}

void WrittenArenas::Name(const Carving& carving, const std::shared_ptr<Placement::Range>& range) {
  MutexLock lock(mutex_);
  if (const auto [entry, its] = At(carving.arena->id, carving.offset); entry != nullptr) its->second.range = range;
}

std::shared_ptr<Placement::Range> WrittenArenas::Find(const Device& device, const void* data, uint64_t bytes) const {
  if (!span_.MayContain(data)) return nullptr;
  const auto address = std::bit_cast<uintptr_t>(data);
  MutexLock lock(mutex_);
  const auto above = by_address_.upper_bound(address);
  if (above == by_address_.begin()) return nullptr;
  const auto& [base, entry] = *std::prev(above);
  const uint64_t offset = address - base;
  if (offset >= entry->arena->size || !Same(entry->arena->device, device)) return nullptr;
  auto found = entry->ranges.upper_bound(offset);
  if (found == entry->ranges.begin()) return nullptr;
  --found;
  const uint64_t inside = offset - found->first;
  if (inside > found->second.size || bytes > found->second.size - inside) return nullptr;
  return found->second.range.lock();
}

void WrittenArenas::HoldForBroker(const WrittenArena& arena, uint64_t offset) {
  MutexLock lock(mutex_);
  if (const auto [entry, range] = At(arena.id, offset); entry != nullptr) range->second.broker = true;
}

bool WrittenArenas::IsHeldByBroker(const WrittenArena& arena, uint64_t offset) {
  MutexLock lock(mutex_);
  const auto [entry, range] = At(arena.id, offset);
  return entry != nullptr && range->second.broker;
}

void WrittenArenas::Return(std::span<const wire::Range> returned) {
  if (returned.empty()) return;
  MutexLock lock(mutex_);
  for (const wire::Range& range : returned) {
    const auto entry = entries_.find(range.arena);
    if (entry == entries_.end()) continue;
    // The broker may return adjacent ranges as one range.
    auto& ranges = entry->second.ranges;
    for (auto next = ranges.lower_bound(range.offset); next != ranges.end();) {
      const auto at = next++;
      if (at->first - range.offset >= range.size) break;
      at->second.broker = false;
      RecarveIfFree(entry->second, at);
    }
  }
}

void WrittenArenas::Release(uint64_t arena, uint64_t offset, bool local, bool broker) {
  MutexLock lock(mutex_);
  const auto [entry, range] = At(arena, offset);
  if (entry == nullptr) return;
  if (local) range->second.local = false;
  if (broker) range->second.broker = false;
  RecarveIfFree(*entry, range);
}

void WrittenArenas::RecarveIfFree(Entry& entry, std::map<uint64_t, Holders>::iterator range) {
  if (range->second.local || range->second.broker) return;
  entry.carver.Release(range->first, range->second.size);
  entry.spare = entry.ranges.extract(range);
  entry.used = CoarseNow();
}

void WrittenArenas::Forget(const WrittenArena& arena) {
  std::shared_ptr<WrittenArena> dead;  // unmapped outside the lock
  MutexLock lock(mutex_);
  const auto entry = entries_.find(arena.id);
  if (entry == entries_.end()) return;
  dead = Remove(entry->second);
  entries_.erase(entry);
}

std::vector<uint64_t> WrittenArenas::TakeEmpty(Instant before) {
  std::vector<std::shared_ptr<WrittenArena>> dead;
  std::vector<uint64_t> ids;
  {
    MutexLock lock(mutex_);
    // Nothing is removed if there is no memory to tell of it.
    dead.reserve(entries_.size());
    ids.reserve(entries_.size());
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (!entry->second.carver.empty() || entry->second.used > before) {
        ++entry;
        continue;
      }
      ids.push_back(entry->first);
      // All users of the arena were given back after the device had finished, or have waited for their fence.
      if (entry->second.arena->is_mapped()) entry->second.arena->mapping().NoteIdle();
      dead.push_back(Remove(entry->second));
      entry = entries_.erase(entry);
    }
  }
  return ids;
}

uint64_t WrittenArenas::count() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

uint64_t WrittenArenas::bytes() const {
  MutexLock lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [id, entry] : entries_) sum += entry.arena->size;
  return sum;
}

}  // namespace arraybridge
