// What a shell completes behind arraybridgectl, written from the commands and options themselves.
#pragma once

#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace CLI {
class App;
}

namespace arraybridge::ctl {

// What may follow a command or an option, where that is a short list.
struct Choices {
  std::string of;  // "ls", "--output"
  std::vector<std::string> values;
};

// A script for `shell`: bash, zsh or fish. INVALID_ARGUMENT: another one.
Result<std::string> Completion(const CLI::App& app, const std::vector<Choices>& choices, const std::string& shell);

}  // namespace arraybridge::ctl
