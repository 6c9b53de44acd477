// SPDX-License-Identifier: Apache-2.0
// Reads the program's environment.
#pragma once

#include <cstdlib>
#include <string>

namespace arraybridge {

// The variable's value; empty if it is not set or is empty, or if the program has more rights than its user (setuid):
// the user must not choose its broker.
inline std::string Environment(const char* variable) {
  const char* const value = ::secure_getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

// $XDG_RUNTIME_DIR; empty if it is not set or is relative (the XDG Base Directory Specification says to ignore it
// then).
inline std::string RuntimeDirectory() {
  std::string directory = Environment("XDG_RUNTIME_DIR");
  return directory.starts_with('/') ? directory : std::string();
}

}  // namespace arraybridge
