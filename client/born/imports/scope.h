// SPDX-License-Identifier: Apache-2.0
// A BornImports::Scope is the heap in which libraries allocate while it is entered, and what became of their blocks.
// Lock-free, except for its heap.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <arraybridge/born/imports.h>

namespace arraybridge {

class BornImports::Scope {
 public:
  Scope(std::shared_ptr<BornHeap> heap, size_t framework, uint64_t min_bytes)
      : heap_(std::move(heap)), min_bytes_(min_bytes), tally_(heap_->Tally(framework)) {}

  const std::shared_ptr<BornHeap>& heap() const { return heap_; }
  uint64_t min_bytes() const { return min_bytes_; }
  BornTally::Counts counts() const { return tally_->counts(); }
  // Null: the library's own allocator serves.
  void* TryBorn(uint64_t bytes) noexcept { return heap_->TryAllocate(bytes, BornHeap::Parts::kCopied, *tally_); }

 private:
  const std::shared_ptr<BornHeap> heap_;
  const uint64_t min_bytes_;
  const std::shared_ptr<BornTally> tally_;
};

}  // namespace arraybridge
