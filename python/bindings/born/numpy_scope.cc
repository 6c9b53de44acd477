// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/born/numpy_scope.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace arraybridge::python {

namespace {

// Larger zeros come from the operating system, whose fresh pages are zero: writing zeros to 256 MiB takes 126 times as
// long.
constexpr uint64_t kZerosMax = uint64_t{16} << 20;

NumpyScope& ScopeOf(void* context) { return *static_cast<NumpyScope*>(context); }

void* Malloc(void* context, size_t bytes) { return ScopeOf(context).New(bytes); }

void* Calloc(void* context, size_t count, size_t bytes) { return ScopeOf(context).NewZeros(count, bytes); }

}  // namespace

NumpyScope::NumpyScope(std::shared_ptr<BornHeap> heap, uint64_t min_bytes, const NumpyAllocator& fallback)
    : handler_{"arraybridge", 1, {this, Malloc, Calloc, nullptr, nullptr}},
      heap_(std::move(heap)),
      min_bytes_(min_bytes),
      fallback_(fallback) {
  // NumPy's own memory comes here, too: small arrays, and what did not find room.
  handler_.allocator.realloc = [](void* context, void* data, size_t bytes) -> void* {
    NumpyScope& scope = ScopeOf(context);
    if (data == nullptr) return scope.New(bytes);
    if (BornHeap::MayBeBlock(data) && scope.heap().SizeOf(data) != 0) return scope.Resize(data, bytes);
    return scope.fallback_.realloc(scope.fallback_.context, data, bytes);
  };
  handler_.allocator.free = [](void* context, void* data, size_t bytes) {
    NumpyScope& scope = ScopeOf(context);
    if (BornHeap::MayBeBlock(data) && scope.heap().Free(data)) return;
    scope.fallback_.free(scope.fallback_.context, data, bytes);
  };
}

NumpyScope::Counts NumpyScope::counts() const {
  Counts counts{.arrays = arrays_.load(), .bytes = bytes_.load()};
  for (size_t i = 0; i < kMisses; ++i) {
    counts.missed[i] = missed_[i].load();
    counts.missed_bytes[i] = missed_bytes_[i].load();
  }
  return counts;
}

void* NumpyScope::New(size_t bytes) {
  if (bytes >= min_bytes_) {
    if (void* const born = TryBorn(bytes)) return born;
  }
  return fallback_.malloc(fallback_.context, bytes);
}

void* NumpyScope::NewZeros(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  if (all > kZerosMax && all >= min_bytes_) {
    NoteMiss(Miss::kZeros, all);
  } else if (all >= min_bytes_) {
    if (void* const born = TryBorn(all)) return std::memset(born, 0, all);
  }
  return fallback_.calloc(fallback_.context, count, bytes);
}

// Published bytes are never written, so that they move even if the new size fits.
void* NumpyScope::Resize(void* data, size_t bytes) {
  if (heap_->Fits(data, bytes)) return data;
  void* const moved = New(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, data, std::min<uint64_t>(bytes, heap_->SizeOf(data)));
  heap_->Free(data);
  return moved;
}

void* NumpyScope::TryBorn(size_t bytes) {
  const BornHeap::Block block = heap_->TryAllocate(bytes);
  if (block.data != nullptr) {
    arrays_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return block.data;
  }
  const bool is_child = block.lack == BornHeap::Lack::kChild;
  NoteMiss(is_child ? Miss::kChild : block.lack == BornHeap::Lack::kRefused ? Miss::kRefused : Miss::kNoRoom, bytes);
  return nullptr;
}

void NumpyScope::NoteMiss(Miss why, size_t bytes) {
  const auto index = static_cast<size_t>(why);
  missed_[index].fetch_add(1, std::memory_order_relaxed);
  missed_bytes_[index].fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace arraybridge::python
