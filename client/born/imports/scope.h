// SPDX-License-Identifier: Apache-2.0
// A BornImports::Scope is the heap in which libraries allocate while it is entered, and what became of their blocks.
// Lock-free, except for its heap.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <arraybridge/born/imports.h>

namespace arraybridge {

class BornImports::Scope {
 public:
  Scope(std::shared_ptr<BornHeap> heap, uint64_t min_bytes) : heap_(std::move(heap)), min_bytes_(min_bytes) {}

  const std::shared_ptr<BornHeap>& heap() const { return heap_; }
  uint64_t min_bytes() const { return min_bytes_; }
  Counts counts() const;
  // Null: the library's own allocator serves.
  void* TryBorn(uint64_t bytes) noexcept;

 private:
  const std::shared_ptr<BornHeap> heap_;
  const uint64_t min_bytes_;
  std::atomic<uint64_t> blocks_{0};
  std::atomic<uint64_t> bytes_{0};
  std::array<std::atomic<uint64_t>, kLacks> missed_{};
  std::array<std::atomic<uint64_t>, kLacks> missed_bytes_{};
};

}  // namespace arraybridge
