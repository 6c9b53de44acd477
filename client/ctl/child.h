// SPDX-License-Identifier: Apache-2.0
// A Child is another program that a command runs, with the environment and the output of this one.
#pragma once

#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Returns the exit status. `words`: the program, as a path or a name for $PATH, and its arguments. `output`: the
// descriptor that its output is written to, instead of the output of this program. NOT_FOUND: there is no such program.
Result<int> RunChild(std::vector<std::string> words, int output = 1);

// The Python that started this program, from $ARRAYBRIDGE_PYTHON; without one python3, for $PATH.
std::string PythonProgram();
// `python -m arraybridge` with these words, as a program and its arguments.
std::vector<std::string> PythonWords(const std::vector<std::string>& words);
// Runs it, as RunChild.
Result<int> RunPython(const std::vector<std::string>& words, int output = 1);

}  // namespace arraybridge::ctl
