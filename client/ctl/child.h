// SPDX-License-Identifier: Apache-2.0
// A Child is another program that a command runs, with the environment and the output of this one.
#pragma once

#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Returns the exit status. `words`: the program, as a path or a name for $PATH, and its arguments. NOT_FOUND: there is
// no such program.
Result<int> RunChild(std::vector<std::string> words);

}  // namespace arraybridge::ctl
