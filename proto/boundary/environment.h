// What the program's environment says.
#pragma once

#include <cstdlib>
#include <string>

namespace arraybridge {

// Empty: it does not say, or says nothing.
inline std::string Environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

// $XDG_RUNTIME_DIR; empty if there is none. A relative one is none (XDG Base Directory Specification).
inline std::string RuntimeDirectory() {
  std::string said = Environment("XDG_RUNTIME_DIR");
  return said.starts_with('/') ? said : std::string();
}

}  // namespace arraybridge
