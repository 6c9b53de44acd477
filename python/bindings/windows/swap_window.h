// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.SwapWindow: addresses at which one generation of a bundle after the other is read.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

// REQUIRES: AddBundle was called.
void AddSwapWindow(pybind11::module_& module);

}  // namespace arraybridge::python
