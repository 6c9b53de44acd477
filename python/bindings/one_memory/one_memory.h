// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.on_gpu, on_host, host_reach and registrations: host memory that GPUs read where it lies.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddOneMemory(pybind11::module_& module);

}  // namespace arraybridge::python
