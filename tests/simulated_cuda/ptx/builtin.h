// SPDX-License-Identifier: Apache-2.0
// The functions that the driver itself has for kernels: vprintf and __assertfail.
#pragma once

#include <functional>
#include <string>

#include "tests/simulated_cuda/ptx/thread.h"

namespace arraybridge::simulated::ptx {

// What a call does; null if there is no such function. `results` and `arguments` may be null.
std::function<void(Thread&)> Builtin(const std::string& name, const Operand* results, const Operand* arguments);

}  // namespace arraybridge::simulated::ptx
