// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.DescribedTable: a table of a share, whose description and sizes were checked, for libraries of
// Arrow.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddDescribedTable(pybind11::module_& module);

}  // namespace arraybridge::python
