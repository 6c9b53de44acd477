// SPDX-License-Identifier: Apache-2.0
// A Violation is a use that hardware leaves undefined: the simulated driver reports it and ends the process.
#pragma once

#include <cstdint>

namespace arraybridge::simulated {

// Prints symbol, reason, argument and a backtrace, then aborts.
[[noreturn]] void Violation(const char* symbol, const char* why, uint64_t argument = 0);

}  // namespace arraybridge::simulated
