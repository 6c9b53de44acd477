// SPDX-License-Identifier: Apache-2.0
// Kernels that a library has as machine code: registering one succeeds, and launching one fails loudly.
#include "tests/simulated_cuda/frameworks/cudart/runtime.h"

using namespace arraybridge::simulated_runtime;

// A launch begins with this call, which must leave an error behind; otherwise the caller would continue with bytes that
// no kernel has written.
RUNTIME unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) {
  LastError() = cudaErrorNotSupported;
  return cudaErrorNotSupported;
}
RUNTIME void** __cudaRegisterFatBinary(void*) {
  static void* binary = nullptr;
  return &binary;
}
#define IGNORED(name)  \
  RUNTIME void name(); \
  RUNTIME void name() {}
IGNORED(__cudaRegisterFatBinaryEnd)
IGNORED(__cudaUnregisterFatBinary)
IGNORED(__cudaRegisterFunction)
IGNORED(__cudaRegisterVar)
IGNORED(__cudaRegisterManagedVar)
IGNORED(__cudaRegisterHostVar)
IGNORED(__cudaInitModule)
