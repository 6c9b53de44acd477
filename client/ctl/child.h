// A Child is another program that a command runs, with this one's environment and output.
#pragma once

#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Its exit status. `words`: the program, by its path or as $PATH has it, and its arguments. NOT_FOUND: there is none.
Result<int> RunChild(std::vector<std::string> words);

}  // namespace arraybridge::ctl
