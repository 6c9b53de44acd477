// arraybridge._core.Core and Placement: the client's Broker for Python. No policy, no framework. Functions that wait or
// copy release the GIL.
#pragma once

#include <arraybridge/array.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string_view>

namespace arraybridge::python {

void AddCore(pybind11::module_& module);

// The share that a Core finds without a call. Keeps the GIL, because it does not wait. Throws if `core` is not a Core.
std::optional<Acquired> TryAcquire(PyObject* core, std::string_view name, bool map_private);

}  // namespace arraybridge::python
