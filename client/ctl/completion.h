// SPDX-License-Identifier: Apache-2.0
// Scripts for shell completion of arraybridgectl, generated from its commands and options.
#pragma once

#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace CLI {
class App;
}

namespace arraybridge::ctl {

// The words that may follow a command or an option, if they are a short list.
struct Choices {
  std::string of;  // "ls", "--output"
  std::vector<std::string> values;
};

// Returns a script for `shell`: bash, zsh or fish. `choices`: beside those of commands that have commands of their own.
// INVALID_ARGUMENT: another shell.
Result<std::string> Completion(const CLI::App& app, std::vector<Choices> choices, const std::string& shell);

}  // namespace arraybridge::ctl
