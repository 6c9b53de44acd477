// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.Bundle and BundlePlan: a share of many arrays, and its form before there is memory for it.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

// REQUIRES: AddCore was called.
void AddBundle(pybind11::module_& module);

}  // namespace arraybridge::python
