// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.device_block and torch_memory: memory on GPUs for the allocators of frameworks.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddDeviceBlocks(pybind11::module_& module);

}  // namespace arraybridge::python
