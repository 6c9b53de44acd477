// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.born_heap and born_numpy: the client's heap for the arrays of frameworks, and NumPy's use of it.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddBorn(pybind11::module_& module);

}  // namespace arraybridge::python
