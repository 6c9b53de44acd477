// arraybridge._core.Core and Placement: the client's Broker for Python. No policy, no framework; the GIL is released
// around everything that waits or copies.
#pragma once

#include <pybind11/pybind11.h>

namespace arraybridge::python {

void AddCore(pybind11::module_& module);

}  // namespace arraybridge::python
