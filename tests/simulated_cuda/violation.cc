// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/violation.h"

#include <cstdio>
#include <cstdlib>

#include <execinfo.h>
#include <unistd.h>

namespace arraybridge::simulated {

void Violation(const char* symbol, const char* why, uint64_t argument) {
  std::fprintf(stderr, "simulated_cuda: VIOLATION in %s: %s (%#llx)\n", symbol, why,
               static_cast<unsigned long long>(argument));
  void* frames[24];
  backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
  std::abort();
}

}  // namespace arraybridge::simulated
