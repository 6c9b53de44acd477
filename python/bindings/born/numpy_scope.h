// SPDX-License-Identifier: Apache-2.0
// A NumpyScope makes NumPy allocate its arrays in a BornHeap: those of the contexts that entered it, or, everywhere,
// those of all threads. Its arrays stay valid after its end: each is freed by the functions that made it.
#pragma once

#include <arraybridge/born/heap.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "python/bindings/born/numpy_api.h"

namespace arraybridge::python {

// Why arrays that are large enough did not land in broker memory.
enum class Miss : uint8_t { kNoRoom, kRefused, kChild, kZeros, kLast = kZeros };
constexpr size_t kMisses = static_cast<size_t>(Miss::kLast) + 1;

// The handler of NumPy's arrays. Called on any thread, also while the interpreter ends.
class NumpyScope {
 public:
  // The arrays that were allocated by it, in total.
  struct Counts {
    uint64_t arrays = 0;
    uint64_t bytes = 0;
    std::array<uint64_t, kMisses> missed{};
    std::array<uint64_t, kMisses> missed_bytes{};
  };

  // Smaller arrays than `min_bytes` are NumPy's own. `fallback`: NumPy's own functions.
  NumpyScope(std::shared_ptr<BornHeap> heap, uint64_t min_bytes, const NumpyAllocator& fallback);
  NumpyScope(const NumpyScope&) = delete;
  NumpyScope& operator=(const NumpyScope&) = delete;

  NumpyHandler& handler() { return handler_; }
  BornHeap& heap() { return *heap_; }
  const std::shared_ptr<BornHeap>& shared_heap() const { return heap_; }
  uint64_t min_bytes() const { return min_bytes_; }
  Counts counts() const;

  void* New(size_t bytes);
  void* NewZeros(size_t count, size_t bytes);
  // REQUIRES: the memory is of its heap.
  void* Resize(void* data, size_t bytes);

 private:
  void* TryBorn(size_t bytes);
  void NoteMiss(Miss why, size_t bytes);

  NumpyHandler handler_;
  const std::shared_ptr<BornHeap> heap_;
  const uint64_t min_bytes_;
  const NumpyAllocator fallback_;
  std::atomic<uint64_t> arrays_{0};
  std::atomic<uint64_t> bytes_{0};
  std::array<std::atomic<uint64_t>, kMisses> missed_{};
  std::array<std::atomic<uint64_t>, kMisses> missed_bytes_{};
};

}  // namespace arraybridge::python
