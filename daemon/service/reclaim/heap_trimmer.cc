// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/heap_trimmer.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace arraybridge::daemon {
namespace {

constexpr std::chrono::milliseconds kTrimPause{1000};
constexpr uint64_t kKeptBytesMax = 8ull << 20;  // free bytes that the allocator may keep

// The private resident memory, most of which is heap.
uint64_t PrivateBytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), std::fclose);
  unsigned long long resident = 0;
  unsigned long long shared = 0;
  if (!file || std::fscanf(file.get(), "%*u %llu %llu", &resident, &shared) != 2 || shared > resident) return 0;
  return (resident - shared) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void HeapTrimmer::Freed() {
  if (posted_.load(std::memory_order_relaxed) || posted_.exchange(true)) return;
  worker_.PostAt(std::chrono::steady_clock::now() + kTrimPause, [this] {
    posted_.store(false);
    Trim();
  });
}

// malloc_trim holds the allocator's locks while it works, so it runs only if there is memory to return.
void HeapTrimmer::Trim() {
  const struct mallinfo2 heap = ::mallinfo2();
  if (PrivateBytes() > heap.uordblks + heap.hblkhd + kKeptBytesMax) ::malloc_trim(0);
}

}  // namespace arraybridge::daemon
