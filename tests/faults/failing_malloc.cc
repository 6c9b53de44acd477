// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that makes allocations of a process fail while it runs. The file $FAILING_MALLOC, mapped by
// the process, controls it: a test writes which allocation fails, and reads how many there were.
//
// Only allocations by C++ code count, that is, operator new: the process's own code says there what a failure means,
// while libraries in C abort on theirs.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

// The layout of the file; all are counters of the process, except that a test writes `fail_at` and `fail_all`.
struct Control {
  std::atomic<int64_t> seen;      // allocations since the test set it to 0
  std::atomic<int64_t> fail_at;   // the number of the allocation that fails; 0: none
  std::atomic<int64_t> fail_all;  // not 0: and all after it
  std::atomic<int64_t> failed;    // allocations that failed
};

Control* Map() {
  const char* const path = std::getenv("FAILING_MALLOC");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const mapped = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? nullptr : static_cast<Control*>(mapped);
}

bool Fails() {
  static Control* const control = Map();
  if (control == nullptr) return false;
  const int64_t number = control->seen.fetch_add(1) + 1;
  const int64_t fail_at = control->fail_at.load();
  const bool fails = fail_at != 0 && (number == fail_at || (number > fail_at && control->fail_all.load() != 0));
  if (fails) control->failed.fetch_add(1);
  return fails;
}

void* Allocate(std::size_t size, std::size_t alignment) noexcept {
  if (Fails()) return nullptr;
  if (size == 0) size = 1;
  if (alignment == 0) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* AllocateOrThrow(std::size_t size, std::size_t alignment) {
  void* const block = Allocate(size, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

std::size_t Number(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void* operator new(std::size_t size) { return AllocateOrThrow(size, 0); }
EXPORTED void* operator new[](std::size_t size) { return AllocateOrThrow(size, 0); }
EXPORTED void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 0); }
EXPORTED void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 0); }
EXPORTED void* operator new(std::size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, Number(alignment));
}
EXPORTED void* operator new[](std::size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, Number(alignment));
}
EXPORTED void operator delete(void* block) noexcept { std::free(block); }
EXPORTED void operator delete[](void* block) noexcept { std::free(block); }
EXPORTED void operator delete(void* block, std::size_t) noexcept { std::free(block); }
EXPORTED void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
EXPORTED void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
EXPORTED void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
EXPORTED void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
EXPORTED void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
