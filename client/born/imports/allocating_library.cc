// SPDX-License-Identifier: Apache-2.0
// A slot has room for an address alone, so each library gets functions of its own, which know its number.
#include "client/born/imports/allocating_library.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/boundary/shared_word.h"

namespace arraybridge {
namespace {

constexpr size_t kLibrariesMax = 8;
constexpr size_t kAlignmentMax = 4096;  // blocks begin at a page

// Neither ends: memory may be freed while the process exits. Written under NoForkHere.
std::array<std::atomic<AllocatingLibrary*>, kLibrariesMax> g_libraries{};

// A list of all heaps that were ever entered, which only grows, so that it is read without a lock.
struct HeapNode {
  std::shared_ptr<BornHeap> heap;
  const HeapNode* next;
};
std::atomic<const HeapNode*> g_heaps{nullptr};

void AddHeap(const std::shared_ptr<BornHeap>& heap) {
  const NoForkHere here;
  const HeapNode* const first = g_heaps.load();
  for (const HeapNode* node = first; node != nullptr; node = node->next) {
    if (node->heap == heap) return;
  }
  g_heaps.store(new HeapNode{heap, first}, std::memory_order_release);
}

BornHeap* HeapOf(const void* data) {
  if (data == nullptr || !BornHeap::MayBeBlock(data)) return nullptr;
  for (const HeapNode* node = g_heaps.load(std::memory_order_acquire); node != nullptr; node = node->next) {
    if (node->heap->SizeOf(data) != 0) return node->heap.get();
  }
  return nullptr;
}

// The caller has read our function's address without an order: what was stored before it is seen from here on.
template <size_t kNumber>
AllocatingLibrary& Library() {
  ThreadFence(std::memory_order_acquire);
  return *g_libraries[kNumber].load(std::memory_order_acquire);
}

template <size_t kNumber>
constexpr AllocatingLibrary::Functions kOurs = {
    [](void** data, size_t alignment, size_t bytes) {
      return Library<kNumber>().PosixMemalign(data, alignment, bytes);
    },
    [](size_t alignment, size_t bytes) { return Library<kNumber>().AlignedAlloc(alignment, bytes); },
    [](void* data, size_t bytes) { return Library<kNumber>().Realloc(data, bytes); },
    [](void* data) { Library<kNumber>().Free(data); },
};

template <size_t... kNumbers>
constexpr std::array<AllocatingLibrary::Functions, kLibrariesMax> AllOurs(std::index_sequence<kNumbers...> /*all*/) {
  return {kOurs<kNumbers>...};
}

}  // namespace

Result<AllocatingLibrary*> AllocatingLibrary::Of(const std::string& file_name) {
  static constexpr auto kFunctions = AllOurs(std::make_index_sequence<kLibrariesMax>());
  NoForkHere here;
  size_t number = 0;
  for (; number < kLibrariesMax; ++number) {
    AllocatingLibrary* const known = g_libraries[number].load();
    if (known == nullptr) break;
    if (known->file_name_ == file_name) return known;
  }
  const auto loaded = LoadedLibrary::Find(file_name);
  if (!loaded) return NotFound("this process has not loaded ", file_name);
  if (number == kLibrariesMax) {
    return ResourceExhausted("the allocations of ", kLibrariesMax, " libraries are exchanged, which is the most");
  }
  // Known before its functions are called. A library whose slots cannot be exchanged takes no number.
  auto library = std::unique_ptr<AllocatingLibrary>(new AllocatingLibrary(file_name, *loaded, kFunctions[number]));
  g_libraries[number].store(library.get(), std::memory_order_release);
  if (!library->ExchangeFrees()) {
    g_libraries[number].store(nullptr);
    return MakeStatus(Code::kUnimplemented, file_name, " does not call posix_memalign or aligned_alloc, and free, of ",
                      "another library, or its calls cannot be exchanged");
  }
  here.Join(library.get());
  return library.release();
}

AllocatingLibrary::AllocatingLibrary(std::string file_name, const LoadedLibrary& library, const Functions& ours)
    : file_name_(std::move(file_name)), own_{::posix_memalign, ::aligned_alloc, ::realloc, ::free} {
  allocating_.push_back(ImportOf(library, "posix_memalign", ours.posix_memalign, own_.posix_memalign));
  allocating_.push_back(ImportOf(library, "aligned_alloc", ours.aligned_alloc, own_.aligned_alloc));
  freeing_.push_back(ImportOf(library, "free", ours.free, own_.free));
  freeing_.push_back(ImportOf(library, "realloc", ours.realloc, own_.realloc));
}

// A function that was never called may not be linked yet: its slot has an address in the library, which would link it
// and store it in the slot. `own` stays this library's then.
template <class Function>
AllocatingLibrary::Import AllocatingLibrary::ImportOf(const LoadedLibrary& library, const char* name, Function ours,
                                                      Function& own) {
  Import found{library.SlotsOf(name), {}, std::bit_cast<void*>(ours)};
  for (const ImportSlot& slot : found.slots) {
    void* const linked = slot.function();
    if (!library.Contains(linked)) own = std::bit_cast<Function>(linked);
    found.linked.push_back(linked);
  }
  return found;
}

// A failure leaves the slots that were exchanged: the functions behind them are the library's own.
bool AllocatingLibrary::ExchangeFrees() {
  const auto imports = [](const Import& import) { return !import.slots.empty(); };
  if (std::ranges::none_of(allocating_, imports) || !imports(freeing_.front())) return false;
  const auto writable = [](const Import& import) {
    for (size_t i = 0; i < import.slots.size(); ++i) {
      if (!import.slots[i].Store(import.linked[i])) return false;
    }
    return true;
  };
  if (!std::ranges::all_of(allocating_, writable) || !std::ranges::all_of(freeing_, writable)) return false;
  for (const Import& import : freeing_) {
    for (const ImportSlot& slot : import.slots) slot.Store(import.ours);
  }
  return true;
}

void AllocatingLibrary::Allocate(bool here) {
  for (const Import& import : allocating_) {
    for (size_t i = 0; i < import.slots.size(); ++i) import.slots[i].Store(here ? import.ours : import.linked[i]);
  }
}

void AllocatingLibrary::Enter(const std::shared_ptr<BornImports::Scope>& scope) {
  AddHeap(scope->heap());
  const MutexLock lock(mutex_);
  scopes_.push_back(scope);
  min_bytes_.store(scope->min_bytes());
  if (scopes_.size() == 1) Allocate(true);
}

void AllocatingLibrary::Leave(const BornImports::Scope& scope) {
  std::shared_ptr<BornImports::Scope> gone;  // destroyed without the lock
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(scopes_, &scope, &std::shared_ptr<BornImports::Scope>::get);
  if (found == scopes_.end()) return;
  gone = std::move(*found);
  scopes_.erase(found);
  min_bytes_.store(scopes_.empty() ? UINT64_MAX : scopes_.back()->min_bytes());
  if (scopes_.empty()) Allocate(false);
}

void* AllocatingLibrary::TryBorn(size_t alignment, size_t bytes) noexcept {
  if (bytes < min_bytes_.load(std::memory_order_relaxed)) return nullptr;
  if (!std::has_single_bit(alignment) || alignment > kAlignmentMax) return nullptr;
  std::shared_ptr<BornImports::Scope> scope;
  {
    const MutexLock lock(mutex_);
    if (!scopes_.empty()) scope = scopes_.back();
  }
  return scope == nullptr ? nullptr : scope->TryBorn(bytes);
}

int AllocatingLibrary::PosixMemalign(void** data, size_t alignment, size_t bytes) noexcept {
  void* const born = alignment % sizeof(void*) == 0 ? TryBorn(alignment, bytes) : nullptr;
  if (born == nullptr) return own_.posix_memalign(data, alignment, bytes);
  *data = born;
  return 0;
}

void* AllocatingLibrary::AlignedAlloc(size_t alignment, size_t bytes) noexcept {
  void* const born = TryBorn(alignment, bytes);
  return born == nullptr ? own_.aligned_alloc(alignment, bytes) : born;
}

// Published bytes are never written, so that a block moves even if the new size fits.
void* AllocatingLibrary::Realloc(void* data, size_t bytes) noexcept {
  BornHeap* const heap = HeapOf(data);
  if (heap == nullptr) return own_.realloc(data, bytes);
  if (bytes > 0 && heap->Fits(data, bytes)) return data;
  void* const moved = bytes == 0 ? nullptr : own_.realloc(nullptr, bytes);
  if (moved == nullptr && bytes > 0) return nullptr;
  if (moved != nullptr) std::memcpy(moved, data, std::min<uint64_t>(bytes, heap->SizeOf(data)));
  heap->Free(data);
  return moved;
}

void AllocatingLibrary::Free(void* data) noexcept {
  const int error = errno;
  BornHeap* const heap = HeapOf(data);
  if (heap == nullptr || !heap->Free(data)) own_.free(data);
  errno = error;
}

void AllocatingLibrary::BeforeFork() noexcept { mutex_.lock(); }

void AllocatingLibrary::AfterForkInParent(int /*child_life*/) noexcept { mutex_.unlock(); }

void AllocatingLibrary::AfterForkInChild() noexcept { mutex_.unlock(); }

}  // namespace arraybridge
