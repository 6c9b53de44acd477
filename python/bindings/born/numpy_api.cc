// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/born/numpy_api.h"

#include <pybind11/numpy.h>

namespace arraybridge::python {

namespace {

namespace py = pybind11;

// Places in NumPy's table of functions, which never change.
constexpr size_t kSetHandler = 304;
constexpr size_t kDefaultHandler = 306;

}  // namespace

const NumpyMemory& NumpyMemory::Get() {
  static const NumpyMemory memory;
  return memory;
}

NumpyMemory::NumpyMemory() {
  const py::object table = py::detail::import_numpy_core_submodule("multiarray").attr("_ARRAY_API");
  void** const entries = static_cast<void**>(PyCapsule_GetPointer(table.ptr(), nullptr));
  if (entries == nullptr) throw py::error_already_set();
  set_handler_ = reinterpret_cast<PyObject* (*)(PyObject*)>(entries[kSetHandler]);
  PyObject* const capsule = *static_cast<PyObject**>(entries[kDefaultHandler]);
  default_ = static_cast<NumpyHandler*>(PyCapsule_GetPointer(capsule, kNumpyHandlerCapsule));
  if (default_ == nullptr) throw py::error_already_set();
  if (default_->version != 1) throw py::import_error("this NumPy has memory handlers of an unknown version");
}

}  // namespace arraybridge::python
