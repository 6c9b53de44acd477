// SPDX-License-Identifier: Apache-2.0
// The data that simulated drivers of several processes share: the header pages of a block, the slots of events, and the
// 64 bytes of handles.
#pragma once

#include <atomic>
#include <cstdint>

namespace arraybridge::simulated {

inline constexpr uint64_t kMagic = 0x3153'4352'4144'5543;
inline constexpr uint64_t kGranularity = uint64_t{2} << 20;
// cuMemAlloc places small allocations this far apart in one shared block.
inline constexpr uint64_t kUnit = 512;
inline constexpr uint32_t kEventsMax = 1000;

// True while the process has not ended; a zombie counts as ended.
bool IsAlive(int32_t pid);

// The processes that have an object open. Entries of dead processes do not count.
template <size_t kCount>
struct Importers {
  struct Entry {
    std::atomic<int32_t> pid;
    std::atomic<uint32_t> what;
  };
  Entry entries[kCount];

  bool Add(int32_t pid, uint32_t what) {
    for (Entry& entry : entries) {
      int32_t old = entry.pid;
      if (old != 0 && IsAlive(old)) continue;
      if (!entry.pid.compare_exchange_strong(old, pid)) continue;
      entry.what = what;
      return true;
    }
    return false;
  }
  void Remove(int32_t pid, uint32_t what) {
    for (Entry& entry : entries) {
      if (entry.pid != pid || entry.what != what) continue;
      entry.pid = 0;
      return;
    }
  }
  bool Any(uint32_t what) const {
    for (const Entry& entry : entries) {
      if (entry.pid != 0 && entry.what == what && IsAlive(entry.pid)) return true;
    }
    return false;
  }
};

enum class BlockKind : uint32_t { kVmm = 1, kAlloc = 2 };

// The header before the bytes in a block's memfd.
struct BlockHeader {
  uint64_t magic;
  uint64_t id;
  uint64_t size;
  uint64_t owner;  // ProcessNonce of its creator, because processes in different PID namespaces can have the same pid
  int32_t device;  // physical
  BlockKind kind;
  uint32_t handle_types;
  Importers<64> importers;             // importers of legacy handles, by unit
  std::atomic<uint64_t> nonces[4096];  // by unit: the nonce of its allocation, or 0
};
inline constexpr uint64_t kHeaderBytes = uint64_t{64} << 10;
static_assert(sizeof(BlockHeader) <= kHeaderBytes);

// One interprocess event.
struct EventSlot {
  std::atomic<uint64_t> nonce;
  std::atomic<uint64_t> recorded;  // number of the latest record
  std::atomic<uint64_t> done;      // number of the latest completed record
  std::atomic<uint64_t> wanted;    // number of the latest record that another process waits for
  std::atomic<uint32_t> alive;
  std::atomic<uint32_t> word;  // futex: changes with `done`
  Importers<16> importers;
};

// One file per process. Its owner holds a lock on it, so a process that gets the lock knows that the owner is dead.
struct EventDoor {
  uint64_t magic;
  int32_t pid;
  std::atomic<uint32_t> bell;  // futex: a process waits for a record
  EventSlot slots[kEventsMax];
};

struct MemoryHandleBytes {
  uint64_t magic;
  uint64_t id;
  uint64_t nonce;
  uint64_t offset;
  int32_t pid;
  int32_t descriptor;
  uint64_t unused[3];
};
static_assert(sizeof(MemoryHandleBytes) == 64);

struct EventHandleBytes {
  uint64_t magic;
  uint64_t nonce;
  uint64_t file;
  int32_t pid;
  uint32_t slot;
  uint64_t unused[4];
};
static_assert(sizeof(EventHandleBytes) == 64);

}  // namespace arraybridge::simulated
