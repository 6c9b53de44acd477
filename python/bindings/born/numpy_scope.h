// SPDX-License-Identifier: Apache-2.0
// A NumpyScope makes NumPy allocate its arrays in a BornHeap: those of the contexts that entered it, or, everywhere,
// those of all threads. Its arrays stay valid after its end: each is freed by the functions that made it.
#pragma once

#include <arraybridge/born/heap.h>

#include <cstdint>
#include <memory>

#include "python/bindings/born/numpy_api.h"

namespace arraybridge::python {

// The handler of NumPy's arrays. Called on any thread, also while the interpreter ends.
class NumpyScope {
 public:
  // Smaller arrays than `min_bytes` are NumPy's own. `fallback`: NumPy's own functions.
  NumpyScope(std::shared_ptr<BornHeap> heap, uint64_t min_bytes, const NumpyAllocator& fallback);
  NumpyScope(const NumpyScope&) = delete;
  NumpyScope& operator=(const NumpyScope&) = delete;

  NumpyHandler& handler() { return handler_; }
  BornHeap& heap() { return *heap_; }
  const std::shared_ptr<BornHeap>& shared_heap() const { return heap_; }
  uint64_t min_bytes() const { return min_bytes_; }
  // Of the arrays that were allocated by it, in total.
  BornTally::Counts counts() const { return tally_->counts(); }

  void* New(size_t bytes);
  void* NewZeros(size_t count, size_t bytes);
  // REQUIRES: the memory is of its heap.
  void* Resize(void* data, size_t bytes);

 private:
  NumpyHandler handler_;
  const std::shared_ptr<BornHeap> heap_;
  const uint64_t min_bytes_;
  const NumpyAllocator fallback_;
  const std::shared_ptr<BornTally> tally_;
};

}  // namespace arraybridge::python
