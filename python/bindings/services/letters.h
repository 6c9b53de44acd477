// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.letter and read_letter: letters of services as bytes (client/services/letter.proto).
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddLetters(pybind11::module_& module);

}  // namespace arraybridge::python
