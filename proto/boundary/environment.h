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

}  // namespace arraybridge
