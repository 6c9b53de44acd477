// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/ndarray.h"

#include <dlpack/dlpack.h>
#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

namespace py = pybind11;
using NumpyApi = py::detail::npy_api;

template <class Number>
constexpr uint8_t kBits = sizeof(Number) * 8;

// https://numpy.org/doc/stable/reference/c-api/dtype.html#enumerated-types; no code: DLPack has no such type, or it is
// none of numbers.
constexpr DataType kTypes[] = {
    {kDLBool, 8, 1},
    {kDLInt, 8, 1},
    {kDLUInt, 8, 1},
    {kDLInt, kBits<short>, 1},
    {kDLUInt, kBits<short>, 1},
    {kDLInt, kBits<int>, 1},
    {kDLUInt, kBits<int>, 1},
    {kDLInt, kBits<long>, 1},
    {kDLUInt, kBits<long>, 1},
    {kDLInt, kBits<long long>, 1},
    {kDLUInt, kBits<long long>, 1},
    {kDLFloat, kBits<float>, 1},
    {kDLFloat, kBits<double>, 1},
    {},  // long double
    {kDLComplex, 2 * kBits<float>, 1},
    {kDLComplex, 2 * kBits<double>, 1},
};
constexpr int kHalf = 23;

std::optional<DataType> TypeOf(const py::dtype& dtype) {
  if (const char order = dtype.byteorder(); order != '=' && order != '|') return std::nullopt;
  const int number = dtype.num();
  if (number == kHalf) return DataType{kDLFloat, 16, 1};
  if (number < 0 || number >= static_cast<int>(std::size(kTypes)) || kTypes[number].bits == 0) return std::nullopt;
  return kTypes[number];
}

// The first number with this type, which is the one that NumPy's own names have.
std::optional<int> NumberOf(DataType type) {
  if (type == DataType{kDLFloat, 16, 1}) return kHalf;
  const auto* const found = std::ranges::find(kTypes, type);
  if (found == std::end(kTypes) || type.bits == 0) return std::nullopt;
  return static_cast<int>(found - std::begin(kTypes));
}

// In bytes. Empty: NumPy computes those of a compact array.
std::vector<Py_intptr_t> StridesOf(const View& view) {
  std::vector<Py_intptr_t> strides;
  if (view.compact()) return strides;
  strides.assign(view.strides.begin(), view.strides.end());
  for (Py_intptr_t& stride : strides) stride *= view.type.bits / 8;
  return strides;
}

// `strides`: in bytes; null: NumPy computes those of a compact array.
PyObject* Make(PyObject* object, const View& view, const Py_intptr_t* strides) {
  const auto number = NumberOf(view.type);
  if (!number) return PyErr_Format(PyExc_BufferError, "NumPy has no dtype for this array");
  try {
    if (view.data == nullptr) {
      py::array empty(py::dtype(*number), view.shape);
      if (view.read_only) py::detail::array_proxy(empty.ptr())->flags &= ~NumpyApi::NPY_ARRAY_WRITEABLE_;
      return empty.release().ptr();
    }
    const NumpyApi& numpy = NumpyApi::get();
    Ref array(numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, numpy.PyArray_DescrFromType_(*number),
                                          static_cast<int>(view.shape.size()), view.shape.data(), strides, view.data,
                                          view.read_only ? 0 : NumpyApi::NPY_ARRAY_WRITEABLE_, nullptr));
    if (array == nullptr || numpy.PyArray_SetBaseObject_(array.get(), Py_NewRef(object)) < 0) return nullptr;
    return array.release();
  } catch (py::error_already_set& error) {
    return error.restore(), nullptr;
  }
}

}  // namespace

bool ReadNdarray(PyObject* object, View& view) {
  // By its name, because NumPy may not be imported, and pybind11 would import it to tell.
  if (std::strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0) return false;
  if (!py::isinstance<py::array>(py::handle(object))) return false;
  const auto array = py::reinterpret_borrow<py::array>(object);
  const auto type = TypeOf(array.dtype());
  if (!type || array.size() == 0 || (array.flags() & py::array::c_style) == 0) return false;
  view.data = const_cast<void*>(array.data());
  view.type = *type;
  view.dtype = NameOf(*type);
  view.shape.assign(array.shape(), array.shape() + array.ndim());
  view.strides = CompactStrides(view.shape);
  view.read_only = !array.writeable();
  return true;
}

PyObject* Ndarray(PyObject*, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [object]() -> PyObject* {
    const View* const view = ViewOf(object);
    if (view == nullptr || !CheckDlpackSays(*view)) return nullptr;
    if (view->device.type != kDeviceCpu) return PyErr_Format(PyExc_BufferError, "NumPy has no arrays on GPUs");
    const std::vector<Py_intptr_t> strides = StridesOf(*view);
    return Make(object, *view, strides.empty() ? nullptr : strides.data());
  });
}

PyObject* NdarrayOfOrdinary(PyObject* view) {
  return Guarded(static_cast<PyObject*>(nullptr), [view] { return Make(view, *ViewOf(view), nullptr); });
}

}  // namespace arraybridge::python
