// SPDX-License-Identifier: Apache-2.0
// The arenas that one session writes, and the ranges carved out of them. A range has two holders: the views of this
// process, and the broker once the range is published. The range is free again when both have let go.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <arraybridge/array.h>

#include "client/arenas/address_span.h"
#include "client/arenas/carver.h"
#include "client/memory/memory_mapper.h"
#include "client/process/fork_guard.h"
#include "client/wire/codec.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// One arena, mapped writable. WrittenArenas owns the ranges carved from it, and guards them with its lock.
class WrittenArena : public ForkParticipant {
 public:
  // REQUIRES: `pinned` only if the mapping is.
  WrittenArena(const Handle& handle, std::unique_ptr<Mapping> mapping, bool own, bool pinned = false);
  ~WrittenArena() override;

  std::byte* data() const { return data_; }
  bool is_mapped() const { return mapping_ != nullptr; }
  // REQUIRES: is_mapped().
  Mapping& mapping() { return *mapping_; }
  // REQUIRES: no thread reads or writes it any more.
  void Unmap();
  // Makes the mapping private in the child, which must not write into its parent's shares.
  void AfterForkInChild() noexcept override;

  const uint64_t id;
  const uint64_t generation;
  const uint64_t size;
  const Device device;
  const HandleKind kind;
  const bool own;          // used by one placement only, so that the broker can seal it
  const bool pinned;       // host memory that GPUs may copy from and to without this process's knowledge
  uint64_t continued = 0;  // Lifeline::continued when it was made
  // True once the broker has published from it. The broker then knows that it is mapped, and an unwaited publish cannot
  // overtake that message.
  std::atomic<bool> published_of{false};

 private:
  std::unique_ptr<Mapping> mapping_;
  std::byte* const data_;
};

// Thread-safe.
class WrittenArenas {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // `large`: a range of at least this many bytes gets an arena of its own.
  explicit WrittenArenas(uint64_t large) : large_(large) {}

  struct Carving {
    std::shared_ptr<WrittenArena> arena;
    uint64_t offset = 0;
  };
  // Carves a range, held by this process, from the existing arenas on `device` that are pinned, or not. REQUIRES:
  // `bytes` is a multiple of the granule. `continued`: Lifeline::continued, because memory as a cudaIpcMemHandle ends
  // with its daemon.
  std::optional<Carving> Carve(const Device& device, uint64_t bytes, uint64_t continued = 0, bool pinned = false) {
    return Carve(device, bytes, {.range = {}}, continued, pinned);
  }
  // Carves a range that only the broker will hold; the caller fills and publishes it. REQUIRES: as for Carve.
  std::optional<Carving> CarveForBroker(const Device& device, uint64_t bytes) {
    return Carve(device, bytes, {.local = false, .broker = true, .range = {}}, 0, false);
  }
  // As the first Carve, from this arena alone.
  std::optional<Carving> CarveIn(const WrittenArena& arena, uint64_t bytes);
  // Adds `arena` and carves the range from it.
  Carving Add(std::shared_ptr<WrittenArena> arena, uint64_t bytes);
  // The size of the next arena on `device` for a range of `bytes`.
  uint64_t NextSize(const Device& device, uint64_t bytes, bool own, bool pinned = false) const;

  // Registers `range`, made from this carving, so that Find finds it by the address of its views.
  void Name(const Carving& carving, const std::shared_ptr<Placement::Range>& range);
  // The registered range that contains all of [data, data + bytes); null if there is none.
  std::shared_ptr<Placement::Range> Find(const Device& device, const void* data, uint64_t bytes) const;

  // Makes `joint` of these ranges, which follow one another and fill it. False: one of them is published, or joined.
  bool Join(std::span<const std::shared_ptr<Placement::Range>> parts, const std::shared_ptr<Placement::Range>& joint);

  void ReleaseLocal(const WrittenArena& arena, uint64_t offset) { ReleaseLocal(arena.id, offset); }
  void ReleaseLocal(uint64_t arena, uint64_t offset) { Release(arena, offset, true, false); }
  void HoldForBroker(const WrittenArena& arena, uint64_t offset);
  bool IsHeldByBroker(const WrittenArena& arena, uint64_t offset);
  void ReleaseForBroker(uint64_t arena, uint64_t offset) { Release(arena, offset, false, true); }
  // Both in one step.
  void ReleaseBoth(uint64_t arena, uint64_t offset) { Release(arena, offset, true, true); }
  // Frees the ranges that the broker has released. Invalid entries change nothing.
  void Return(std::span<const wire::Range> returned);
  // Before an arena is sealed: another one may be mapped at its address. REQUIRES: as for WrittenArena::Unmap.
  void Unmap(WrittenArena& arena);
  // Removes a sealed arena, which is no longer writable.
  void Forget(const WrittenArena& arena);

  // Unmaps the arenas that have had no carved range since `before`. Returns their ids.
  std::vector<uint64_t> TakeEmpty(Instant before);

  uint64_t count() const;
  uint64_t bytes() const;

 private:
  struct Holders {
    uint64_t size = 0;
    bool local = true;
    bool broker = false;
    std::weak_ptr<Placement::Range> range;
  };
  struct Entry {
    std::shared_ptr<WrittenArena> arena;
    bool large = false;  // made for one large range; small ranges would pin it
    Carver carver{0};
    std::map<uint64_t, Holders> ranges;            // by offset
    std::map<uint64_t, Holders>::node_type spare;  // the node of the last range removed, reused by the next
    Instant used{};
  };

  std::optional<Carving> Carve(const Device& device, uint64_t bytes, Holders holders, uint64_t continued, bool pinned)
      AB_EXCLUDES(mutex_);
  Carving CarveFrom(Entry& entry, uint64_t bytes, Holders holders) AB_REQUIRES(mutex_);
  void Release(uint64_t arena, uint64_t offset, bool local, bool broker) AB_EXCLUDES(mutex_);
  // The entry is null if there is no such range.
  std::pair<Entry*, std::map<uint64_t, Holders>::iterator> At(uint64_t arena, uint64_t offset) AB_REQUIRES(mutex_);
  void RecarveIfFree(Entry& entry, std::map<uint64_t, Holders>::iterator range) AB_REQUIRES(mutex_);
  void RemoveAddress(const Entry& entry) AB_REQUIRES(mutex_);
  std::shared_ptr<WrittenArena> Remove(Entry& entry) AB_REQUIRES(mutex_);

  const uint64_t large_;
  mutable Mutex mutex_;
  AddressSpan span_;                                              // written under `mutex_`
  std::map<uint64_t, Entry> entries_ AB_GUARDED_BY(mutex_);       // by arena id
  std::vector<Entry*> of_small_ AB_GUARDED_BY(mutex_);            // those from which small ranges are carved
  std::map<uintptr_t, Entry*> by_address_ AB_GUARDED_BY(mutex_);  // of their first bytes
};

}  // namespace arraybridge
