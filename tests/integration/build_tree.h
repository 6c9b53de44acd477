// SPDX-License-Identifier: Apache-2.0
// Locates the other build products and the CUDA driver of a test. The same binary thus runs where it was built, on the
// simulated driver, and on another machine, on that machine's card.
#pragma once

#include <cstdlib>
#include <string>

#include <dlfcn.h>

namespace arraybridge {

// The path of a file of the build: `product` is its path below the build folder, which is $ARRAYBRIDGE_BUILD or else
// where it was built.
std::string Built(const std::string& product);

// The daemon under test: $ARRAYBRIDGE_DAEMON, or `built`, its path below the build folder.
inline std::string DaemonUnderTest(const std::string& built) {
  const char* const chosen = std::getenv("ARRAYBRIDGE_DAEMON");
  return chosen != nullptr ? chosen : Built(built);
}

// The driver library under test: $ARRAYBRIDGE_CUDA_DRIVER, an absolute path, or `simulated`, a path below the build
// folder.
inline std::string DriverUnderTest(const std::string& simulated) {
  const char* const chosen = std::getenv("ARRAYBRIDGE_CUDA_DRIVER");
  return chosen != nullptr ? chosen : Built(simulated);
}

// True if a test may choose its machine (number of devices, memory, failing calls) and whether work happens late. False
// on a card.
inline bool IsSimulated(const std::string& driver) {
  void* const library = ::dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && ::dlsym(library, "simulated_cuda_counter") != nullptr;
}

}  // namespace arraybridge
