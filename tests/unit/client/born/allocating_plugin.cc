// SPDX-License-Identifier: Apache-2.0
// A library that allocates memory of the C library, as those of frameworks do, and also frees through a table.
#include <cstddef>
#include <cstdlib>

namespace {

void (*const volatile kFrees[])(void*) = {std::free};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* PluginMake(size_t alignment, size_t bytes) {
  void* data = nullptr;
  return ::posix_memalign(&data, alignment, bytes) == 0 ? data : nullptr;
}

[[gnu::visibility("default")]] void* PluginMakeAligned(size_t alignment, size_t bytes) {
  return ::aligned_alloc(alignment, bytes);
}

[[gnu::visibility("default")]] void* PluginGrow(void* data, size_t bytes) { return std::realloc(data, bytes); }

[[gnu::visibility("default")]] void PluginDrop(void* data) { std::free(data); }

[[gnu::visibility("default")]] void PluginDropByTable(void* data) { kFrees[0](data); }
}
