// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.tier: the verb that moves the bytes of shares between memory and files.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddTiers(pybind11::module_& module);

}  // namespace arraybridge::python
