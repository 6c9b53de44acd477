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
constexpr auto kWhole = BornHeap::Parts::kPublished;

NumpyScope& ScopeOf(void* context) { return *static_cast<NumpyScope*>(context); }

void* Malloc(void* context, size_t bytes) { return ScopeOf(context).New(bytes); }

void* Calloc(void* context, size_t count, size_t bytes) { return ScopeOf(context).NewZeros(count, bytes); }

}  // namespace

NumpyScope::NumpyScope(std::shared_ptr<BornHeap> heap, uint64_t min_bytes, const NumpyAllocator& fallback)
    : handler_{"arraybridge", 1, {this, Malloc, Calloc, nullptr, nullptr}},
      heap_(std::move(heap)),
      min_bytes_(min_bytes),
      fallback_(fallback),
      tally_(heap_->Tally(*born::PlaceOf(born::kFrameworks, "numpy"))) {
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

void* NumpyScope::New(size_t bytes) {
  if (bytes >= min_bytes_) {
    if (void* const born = heap_->TryAllocate(bytes, kWhole, *tally_)) return born;
  }
  return fallback_.malloc(fallback_.context, bytes);
}

void* NumpyScope::NewZeros(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  if (all > kZerosMax && all >= min_bytes_) {
    tally_->NoteMiss(BornMiss::kZeros, all);
  } else if (all >= min_bytes_) {
    if (void* const born = heap_->TryAllocate(all, kWhole, *tally_)) return std::memset(born, 0, all);
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

}  // namespace arraybridge::python
