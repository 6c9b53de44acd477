// SPDX-License-Identifier: Apache-2.0
// The calls that only frameworks make, for tests: by name from the loaded library.
#pragma once

#include <string>

#include <dlfcn.h>

#include "tests/integration/build_tree.h"
#include "tests/simulated_cuda/calls.h"

namespace arraybridge::simulated {

// The function of this name in the loaded driver. REQUIRES: it is loaded.
template <class Function>
Function Loaded(const char* name, const std::string& built) {
  void* const library = ::dlopen(DriverUnderTest(built).c_str(), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// The call with the type of its declaration, as GUEST(cuLaunchHostFunc)(stream, function, data).
#define GUEST(name) \
  (::arraybridge::simulated::Loaded<decltype(&::arraybridge::simulated::name)>(#name, SIMULATED_CUDA_LIBRARY))

}  // namespace arraybridge::simulated
