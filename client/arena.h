// The arenas that one session writes, and the ranges carved out of them. A range has two holders: the views of this
// process, and the broker once it is published; its bytes are carved again when both have let go.
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

#include "client/carver.h"
#include "client/codec.h"
#include "client/fork_guard.h"
#include "client/memory/memory_mapper.h"
#include "client/session.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// One arena, mapped writable. What is carved of it belongs to WrittenArenas, under its lock.
class WrittenArena : public ForkParticipant {
 public:
  WrittenArena(const Handle& handle, std::unique_ptr<Mapping> mapping, bool own);
  ~WrittenArena() override;
  WrittenArena(const WrittenArena&) = delete;
  WrittenArena& operator=(const WrittenArena&) = delete;

  std::byte* data() const { return data_; }
  Mapping& mapping() { return *mapping_; }
  // REQUIRES: nobody reads or writes it any more.
  void Unmap();
  // A child must not write into what its parent produces.
  void AfterForkInChild() noexcept override;

  const uint64_t id;
  const uint64_t generation;
  const uint64_t size;
  const Device device;
  const HandleKind kind;
  const bool own;  // for one placement alone, to be sealed for everybody
  // The broker has published of it, so it knows that it is mapped: no later word can come before that one.
  std::atomic<bool> published_of{false};

 private:
  std::unique_ptr<Mapping> mapping_;
  std::byte* const data_;
};

struct Placement::Range final : SessionRemains {
  Range(std::shared_ptr<Session> session, std::shared_ptr<WrittenArena> arena, uint64_t offset, uint64_t size);
  // What was only copied into, and is published, has its fence, which took over what is queued; what frameworks have
  // seen they may use without our knowing.
  // For a range that was sent in a direct channel, the flag there is set, too.
  bool EndAtOnce() noexcept override;
  bool Waits() const override {
    return arena->device.type != kDeviceCpu && (handed_out || !published || !queued.empty());
  }
  void GiveBack(codec::Release& release) override;
  Mapping& Waited() override { return arena->mapping(); }

  std::byte* data() const { return arena->data() + offset; }

  // Copies into it that are queued and may not have happened: on which stream, and what must live until then.
  struct Queued {
    uintptr_t stream = 0;
    std::shared_ptr<const void> source;
  };
  // Of who places, then of who publishes: one thread at a time.
  std::vector<Queued> queued;

  std::shared_ptr<WrittenArena> arena;
  const uint64_t offset;
  const uint64_t size;  // whole granules
  std::atomic<bool> published{false};
  std::atomic<bool> handed_out{false};                   // its views
  std::atomic<std::atomic<bool>*> left_direct{nullptr};  // set when the last view has gone; null: not sent in one
};

// Thread-safe.
class WrittenArenas {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // `large`: from this many bytes on a range gets an arena of its own.
  explicit WrittenArenas(uint64_t large) : large_(large) {}

  struct Carving {
    std::shared_ptr<WrittenArena> arena;
    uint64_t offset = 0;
  };
  // A range with this process as its holder, out of the arenas that are there on `device`. REQUIRES: whole granules.
  std::optional<Carving> Carve(const Device& device, uint64_t bytes) { return Carve(device, bytes, {.range = {}}); }
  // A range that only the broker will hold: to be filled and published by who asks. REQUIRES: whole granules.
  std::optional<Carving> CarveForBroker(const Device& device, uint64_t bytes) {
    return Carve(device, bytes, {.local = false, .broker = true, .range = {}});
  }
  // As Carve, out of a new arena.
  Carving Add(std::shared_ptr<WrittenArena> arena, uint64_t bytes);
  // How large the next arena on `device` should be for a range of `bytes`.
  uint64_t NextSize(const Device& device, uint64_t bytes, bool own) const;

  // The range's views can be found by their address from now on.
  void Name(const std::shared_ptr<Placement::Range>& range);
  // The unpublished range in which all of [data, data + bytes) lies; null if there is none.
  std::shared_ptr<Placement::Range> Find(const Device& device, const void* data, uint64_t bytes) const;

  void DropLocal(const WrittenArena& arena, uint64_t offset) { DropLocal(arena.id, offset); }
  void DropLocal(uint64_t arena, uint64_t offset);
  void HoldForBroker(const WrittenArena& arena, uint64_t offset);
  void DropForBroker(uint64_t arena, uint64_t offset);
  // What the broker says it lets go of; nonsense in it changes nothing.
  void Return(std::span<const codec::Returned> returned);
  // A sealed arena is nobody's to write.
  void Forget(const WrittenArena& arena);

  // Unmaps the arenas in which nothing is carved and nothing was since `before`; their ids.
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
    bool large = false;  // made for one large range: small ones would pin it
    Carver carver;
    std::map<uint64_t, Holders> ranges;            // by offset
    std::map<uint64_t, Holders>::node_type spare;  // of the last range that went, for the next one
    Instant used{};
  };

  std::optional<Carving> Carve(const Device& device, uint64_t bytes, Holders holders) AB_EXCLUDES(mutex_);
  Carving CarveFrom(Entry& entry, uint64_t bytes, Holders holders) AB_REQUIRES(mutex_);
  void Drop(uint64_t arena, uint64_t offset, bool Holders::*holder) AB_REQUIRES(mutex_);
  void RecarveIfFree(Entry& entry, std::map<uint64_t, Holders>::iterator range) AB_REQUIRES(mutex_);

  const uint64_t large_;
  mutable Mutex mutex_;
  std::map<uint64_t, Entry> entries_ AB_GUARDED_BY(mutex_);  // by arena id
};

}  // namespace arraybridge
