// SPDX-License-Identifier: Apache-2.0
// An AllocatingLibrary is a loaded library whose calls of an allocator come here first. It is the process's, and exists
// until the process ends, as its slots do. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/born/imports/loaded_library.h"
#include "client/born/imports/scope.h"
#include "client/process/fork_guard.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class AllocatingLibrary final : public ForkParticipant {
 public:
  // The functions that it imports.
  struct Functions {
    int (*posix_memalign)(void** data, size_t alignment, size_t bytes);
    void* (*aligned_alloc)(size_t alignment, size_t bytes);
    void* (*realloc)(void* data, size_t bytes);
    void (*free)(void* data);
  };

  // The one library of this name, found when it is first asked for. NOT_FOUND: it is not loaded. UNIMPLEMENTED: its
  // calls cannot be exchanged. RESOURCE_EXHAUSTED: too many others were.
  static Result<AllocatingLibrary*> Of(const std::string& file_name);

  // Blocks of its size and more come from the scope that entered last.
  void Enter(const std::shared_ptr<BornImports::Scope>& scope) AB_EXCLUDES(mutex_);
  // Nothing, if the scope has not entered.
  void Leave(const BornImports::Scope& scope) AB_EXCLUDES(mutex_);

  // In place of the imported functions.
  int PosixMemalign(void** data, size_t alignment, size_t bytes) noexcept;
  void* AlignedAlloc(size_t alignment, size_t bytes) noexcept;
  void* Realloc(void* data, size_t bytes) noexcept;
  void Free(void* data) noexcept;

  // Its lock is held over a fork, so that the child does not inherit it from another thread.
  void BeforeFork() noexcept override AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void AfterForkInParent(int child_life) noexcept override AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void AfterForkInChild() noexcept override AB_THREAD_ANNOTATION(no_thread_safety_analysis);

 private:
  // The slots of one function, and what the linker stored there.
  struct Import {
    std::vector<ImportSlot> slots;
    std::vector<void*> linked;
    void* ours = nullptr;
  };

  AllocatingLibrary(std::string file_name, const LoadedLibrary& library, const Functions& ours);
  template <class Function>
  Import ImportOf(const LoadedLibrary& library, const char* name, Function ours, Function& own);
  // False: it calls no aligned allocator and free, or a slot cannot be written.
  bool ExchangeFrees();
  void Allocate(bool here) AB_REQUIRES(mutex_);
  void* TryBorn(size_t alignment, size_t bytes) noexcept;

  const std::string file_name_;
  Functions own_;
  std::vector<Import> allocating_;
  std::vector<Import> freeing_;
  std::atomic<uint64_t> min_bytes_{UINT64_MAX};  // of the active scope
  Mutex mutex_;
  std::vector<std::shared_ptr<BornImports::Scope>> scopes_ AB_GUARDED_BY(mutex_);  // the active one last
};

}  // namespace arraybridge
