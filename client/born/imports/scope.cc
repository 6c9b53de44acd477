// SPDX-License-Identifier: Apache-2.0
#include "client/born/imports/scope.h"

namespace arraybridge {

BornImports::Counts BornImports::Scope::counts() const {
  Counts counts{.blocks = blocks_.load(), .bytes = bytes_.load()};
  for (size_t i = 0; i < kLacks; ++i) {
    counts.missed[i] = missed_[i].load();
    counts.missed_bytes[i] = missed_bytes_[i].load();
  }
  return counts;
}

void* BornImports::Scope::TryBorn(uint64_t bytes) noexcept {
  const BornHeap::Block block = heap_->TryAllocate(bytes, BornHeap::Parts::kCopied);
  if (block.data != nullptr) {
    blocks_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  } else {
    const auto index = static_cast<size_t>(block.lack);
    missed_[index].fetch_add(1, std::memory_order_relaxed);
    missed_bytes_[index].fetch_add(bytes, std::memory_order_relaxed);
  }
  return block.data;
}

}  // namespace arraybridge
