// SPDX-License-Identifier: Apache-2.0
// Stands for the libraries that XLA and TensorFlow open when they begin. The real ones ask the driver for private
// tables. It has the calls of a beginning; an operation that needs another one fails, because that call is not found.
#include <cstddef>

#define LIBRARY extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kVersion = 92600;  // of cuDNN
}

LIBRARY size_t cudnnGetVersion();
LIBRARY size_t cudnnGetCudartVersion();
LIBRARY int cudnnGetProperty(int which, int* value);
LIBRARY int cudnnCreate(void** handle);
LIBRARY int cudnnDestroy(void* handle);
LIBRARY int cudnnSetStream(void* handle, void* stream);
LIBRARY const char* cudnnGetErrorString(int status);

size_t cudnnGetVersion() { return kVersion; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
int cudnnGetProperty(int which, int* value) {
  const int parts[] = {kVersion / 10000, kVersion / 100 % 100, kVersion % 100};
  if (which < 0 || which > 2) return 2000;
  *value = parts[which];
  return 0;
}
int cudnnCreate(void** handle) {
  static char one;
  *handle = &one;
  return 0;
}
int cudnnDestroy(void*) { return 0; }
int cudnnSetStream(void*, void*) { return 0; }
const char* cudnnGetErrorString(int) { return "an error of the simulated cuDNN"; }
