// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: aborts it if it allocates memory after its first fork. Children are not guarded.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_calloc(size_t count, size_t size);
extern "C" void* __libc_realloc(void* block, size_t size);

namespace {

bool is_guarded = false;

void Check() {
  if (!is_guarded) return;
  is_guarded = false;
  constexpr char kWhat[] = "malloc_guard: memory is allocated after the start\n";
  static_cast<void>(!::write(STDERR_FILENO, kWhat, sizeof kWhat - 1));
  std::abort();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* malloc(size_t size) {
  Check();
  return __libc_malloc(size);
}

extern "C" __attribute__((visibility("default"))) void* calloc(size_t count, size_t size) {
  Check();
  return __libc_calloc(count, size);
}

extern "C" __attribute__((visibility("default"))) void* realloc(void* block, size_t size) {
  Check();
  return __libc_realloc(block, size);
}

extern "C" __attribute__((visibility("default"))) pid_t fork() {
  using Fork = pid_t (*)();
  static const Fork real = reinterpret_cast<Fork>(::dlsym(RTLD_NEXT, "fork"));
  const pid_t child = real();
  is_guarded = child != 0;
  return child;
}
