// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.born_imports: the client's heap for the arrays of frameworks that allocate by the C library.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

// REQUIRES: BornHeap is a class of Python already.
void AddBornImports(pybind11::module_& module);

}  // namespace arraybridge::python
