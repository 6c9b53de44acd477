// Where a test finds what was built beside it, and which CUDA driver it uses: so that one binary runs where it was
// built, on the simulated driver, and on another machine, on that machine's card.
#pragma once

#include <cstdlib>
#include <string>

#include <dlfcn.h>

namespace arraybridge {

// A file of the build, given as where it was built: there, or below $ARRAYBRIDGE_BUILD, which stands for the build
// folder on a machine where that has another place.
inline std::string Built(const std::string& path) {
  const char* const moved = std::getenv("ARRAYBRIDGE_BUILD");
  const std::string from = ARRAYBRIDGE_BUILD_FOLDER;
  if (moved == nullptr || !path.starts_with(from)) return path;
  return moved + path.substr(from.size());
}

// The daemon under test: $ARRAYBRIDGE_DAEMON, else `built`, where it was built.
inline std::string DaemonUnderTest(const std::string& built) {
  const char* const chosen = std::getenv("ARRAYBRIDGE_DAEMON");
  return chosen != nullptr ? chosen : Built(built);
}

// The driver library under test: $ARRAYBRIDGE_CUDA_DRIVER, an absolute path, else `simulated`, where it was
// built.
inline std::string DriverUnderTest(const std::string& simulated) {
  const char* const chosen = std::getenv("ARRAYBRIDGE_CUDA_DRIVER");
  return chosen != nullptr ? chosen : Built(simulated);
}

// Whether a test may say what machine it runs on (how many devices, how much memory, which calls fail), and whether
// work happens late: not on a card.
inline bool IsSimulated(const std::string& driver) {
  void* const library = ::dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && ::dlsym(library, "simulated_cuda_counter") != nullptr;
}

}  // namespace arraybridge
