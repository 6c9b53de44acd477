// SPDX-License-Identifier: Apache-2.0
// The other side of the GPU benchmarks: a process that reads shares on command, and answers with the time.
//
//   connect ADDRESS     context      what a first reader pays before any array
//   get NAME            Acquire, dropped with the next one; the value: microseconds
//   warm NAME ROUNDS    Acquire of what stays mapped; the value: the median's microseconds
//   fetch NAME BYTES    Acquire of host memory, and a copy to this process's own GPU memory
#pragma once

#include <string>

namespace arraybridge::bench {

// Answers on descriptor 3 until it is closed.
int RunReader(const std::string& driver);

}  // namespace arraybridge::bench
