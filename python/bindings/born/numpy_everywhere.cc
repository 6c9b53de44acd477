// SPDX-License-Identifier: Apache-2.0
// The state is the process's, as NumPy's handler is: a scope of each Broker may be entered. Threads that run without
// the GIL may free arrays, so the heaps are found in a list that only grows, without a lock.
#include "python/bindings/born/numpy_everywhere.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "proto/boundary/mutex.h"
#include "proto/boundary/shared_word.h"

namespace arraybridge::python {

namespace {

struct HeapNode {
  std::shared_ptr<BornHeap> heap;
  const HeapNode* next;
};

struct State {
  explicit State(const NumpyAllocator& numpys) : own(numpys) {}

  const NumpyAllocator own;
  std::atomic<const HeapNode*> heaps{nullptr};  // nodes are never deleted
  std::atomic<uint64_t> min_bytes{UINT64_MAX};  // of the active scope
  Mutex mutex;
  std::vector<std::shared_ptr<NumpyScope>> scopes AB_GUARDED_BY(mutex);  // the active one last
};

// Made once, with the GIL, and never destroyed: arrays may be freed while the process ends.
std::atomic<State*> g_state{nullptr};

// NumPy has read our function's address without an order: what was stored before it is seen from here on.
State& TheState() {
  ThreadFence(std::memory_order_acquire);
  return *g_state.load(std::memory_order_acquire);
}

std::shared_ptr<NumpyScope> Active(State& state, uint64_t bytes) {
  if (bytes < state.min_bytes.load(std::memory_order_relaxed)) return nullptr;
  const MutexLock lock(state.mutex);
  return state.scopes.empty() ? nullptr : state.scopes.back();
}

BornHeap* HeapOf(State& state, const void* data) {
  if (!BornHeap::MayBeBlock(data)) return nullptr;
  for (const HeapNode* node = state.heaps.load(std::memory_order_acquire); node != nullptr; node = node->next) {
    if (node->heap->SizeOf(data) != 0) return node->heap.get();
  }
  return nullptr;
}

void* MallocAnywhere(void* context, size_t bytes) {
  State& state = TheState();
  const auto scope = Active(state, bytes);
  return scope ? scope->New(bytes) : state.own.malloc(context, bytes);
}

void* CallocAnywhere(void* context, size_t count, size_t bytes) {
  State& state = TheState();
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  const auto scope = Active(state, all);
  return scope ? scope->NewZeros(count, bytes) : state.own.calloc(context, count, bytes);
}

void FreeAnywhere(void* context, void* data, size_t bytes) {
  State& state = TheState();
  BornHeap* const heap = HeapOf(state, data);
  if (heap != nullptr && heap->Free(data)) return;
  state.own.free(context, data, bytes);
}

void* ReallocAnywhere(void* context, void* data, size_t bytes) {
  State& state = TheState();
  if (data == nullptr) return MallocAnywhere(context, bytes);
  BornHeap* const heap = HeapOf(state, data);
  if (heap == nullptr) return state.own.realloc(context, data, bytes);
  if (heap->Fits(data, bytes)) return data;
  void* const moved = MallocAnywhere(context, bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, data, std::min<uint64_t>(bytes, heap->SizeOf(data)));
  heap->Free(data);
  return moved;
}

// A thread without the GIL may call in between: what frees both kinds of memory comes first.
void Exchange(NumpyAllocator& numpys) {
  const auto store = [](auto& place, auto function) { std::atomic_ref(place).store(function); };
  store(numpys.free, FreeAnywhere);
  store(numpys.realloc, ReallocAnywhere);
  store(numpys.calloc, CallocAnywhere);
  store(numpys.malloc, MallocAnywhere);
}

void AddHeap(State& state, const std::shared_ptr<BornHeap>& heap) {
  const HeapNode* const first = state.heaps.load();
  for (const HeapNode* node = first; node != nullptr; node = node->next) {
    if (node->heap == heap) return;
  }
  state.heaps.store(new HeapNode{heap, first}, std::memory_order_release);
}

}  // namespace

void NumpyEverywhere::Enter(const std::shared_ptr<NumpyScope>& scope) {
  NumpyAllocator& numpys = NumpyMemory::Get().Default().allocator;
  if (g_state.load() == nullptr) {
    g_state.store(new State(numpys));
    Exchange(numpys);
  }
  State& state = TheState();
  AddHeap(state, scope->shared_heap());
  const MutexLock lock(state.mutex);
  state.scopes.push_back(scope);
  state.min_bytes.store(scope->min_bytes());
}

void NumpyEverywhere::Leave(const NumpyScope& scope) {
  State& state = TheState();
  std::shared_ptr<NumpyScope> gone;  // destroyed without the lock
  const MutexLock lock(state.mutex);
  const auto found = std::ranges::find(state.scopes, &scope, &std::shared_ptr<NumpyScope>::get);
  if (found == state.scopes.end()) return;
  gone = std::move(*found);
  state.scopes.erase(found);
  state.min_bytes.store(state.scopes.empty() ? UINT64_MAX : state.scopes.back()->min_bytes());
}

NumpyAllocator NumpyEverywhere::Own() {
  const State* const state = g_state.load();
  return state == nullptr ? NumpyMemory::Get().Default().allocator : state->own;
}

}  // namespace arraybridge::python
