// SPDX-License-Identifier: Apache-2.0
// A BornHeap gives the allocator of a framework memory of the broker, so that the arrays that the framework makes are
// published without a copy (Broker::PlacementOf). Memory that it does not have is not an error: the allocator then uses
// its own. Thread-safe.
//
// An allocation takes no call to the daemon and no page fault: it is carved from arenas that are mapped and populated.
// A thread fetches the next arena beside. A forked child allocates nothing here, and what it inherited stays readable.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <arraybridge/born_tally.h>
#include <arraybridge/broker.h>

namespace arraybridge {

class BornHeap {
 public:
  struct Options {
    // An arena has this size, or that of a larger block. While the heap is open it keeps that much at hand, and at most
    // that much, or one block, of what was freed.
    uint64_t reserve_bytes = uint64_t{64} << 20;
  };
  // Why there is no memory.
  enum class Lack : uint8_t {
    kNone,
    kNoRoom,   // no arena has room; the next one is being fetched
    kRefused,  // the broker refused the next arena, or does not answer: refusal() says why
    kChild,    // this process is a forked child
  };
  struct Block {
    std::byte* data = nullptr;  // at the beginning of a page
    Lack lack = Lack::kNone;
  };

  // REQUIRES: the namespace of `broker` is the one into which the arrays will be put.
  static std::shared_ptr<BornHeap> Of(Broker& broker, const Options& options);
  ~BornHeap();
  BornHeap(const BornHeap&) = delete;
  BornHeap& operator=(const BornHeap&) = delete;

  // Connects, and fetches the first arena. If the broker has no memory, it is open all the same. UNAVAILABLE and other
  // errors of a connection. FAILED_PRECONDITION, BORN_CHILD: a forked child needs a heap of its own.
  Status Open();
  // For each Open. After the last one it gives back what is unused, `arena_idle` of the broker later.
  void Close();

  // False: the memory is of no heap. Small memory mostly is not, so that this look is its only cost.
  static bool MayBeBlock(const void* data) { return std::bit_cast<uintptr_t>(data) % 4096 == 0; }
  // An array that takes a part of a block: a put publishes the whole block, or copies the array.
  enum class Parts : uint8_t { kPublished, kCopied };
  Block TryAllocate(uint64_t bytes, Parts parts = Parts::kPublished) noexcept;
  // As TryAllocate, and counts the result. Null: there is no memory.
  void* TryAllocate(uint64_t bytes, Parts parts, BornTally& tally) noexcept;
  // False: the memory is not of this heap.
  bool Free(void* data) noexcept;
  // The bytes of a block; 0: the memory is not of this heap.
  uint64_t SizeOf(const void* data) const noexcept;
  // True if an array of so many bytes may stay in this block: it fills the block, and no reader has it.
  bool Fits(const void* data, uint64_t bytes) const noexcept;

  // For the arrays of one block of code, which the broker is told. REQUIRES: a place in born::kFrameworks.
  std::shared_ptr<BornTally> Tally(size_t framework);
  // Tells the broker of arrays that no heap counts: those on GPUs. False: it cannot be told now. Never waits for it.
  static bool Tell(Broker& broker, const born::Figures& more);
  // The broker's latest refusal of an arena, or success.
  Status refusal() const;

  class Impl;  // client/born/heap.cc
  explicit BornHeap(std::shared_ptr<Impl> impl);

 private:
  const std::shared_ptr<Impl> impl_;
};

}  // namespace arraybridge
