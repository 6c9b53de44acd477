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
std::optional<py::dtype> DtypeOf(DataType type) {
  if (type == DataType{kDLFloat, 16, 1}) return py::dtype(kHalf);
  const auto* const found = std::ranges::find(kTypes, type);
  if (found == std::end(kTypes) || type.bits == 0) return std::nullopt;
  return py::dtype(static_cast<int>(found - std::begin(kTypes)));
}

}  // namespace

std::optional<View> ViewOfNdarray(PyObject* object) {
  // By its name, because NumPy may not be imported, and pybind11 would import it to tell.
  if (std::strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0) return std::nullopt;
  if (!py::isinstance<py::array>(py::handle(object))) return std::nullopt;
  const auto array = py::reinterpret_borrow<py::array>(object);
  const auto type = TypeOf(array.dtype());
  if (!type || array.size() == 0 || (array.flags() & py::array::c_style) == 0) return std::nullopt;
  std::vector<int64_t> shape(array.shape(), array.shape() + array.ndim());
  auto view = Describe(const_cast<void*>(array.data()), *type, std::move(shape), {}, {kDeviceCpu, 0, {}},
                       !array.writeable(), nullptr);
  return view.ok() ? std::optional<View>(*std::move(view)) : std::nullopt;
}

PyObject* Ndarray(PyObject*, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [object]() -> PyObject* {
    const View* const view = ViewOf(object);
    if (view == nullptr || !CheckDlpackSays(*view)) return nullptr;
    if (view->device.type != kDeviceCpu) return PyErr_Format(PyExc_BufferError, "NumPy has no arrays on GPUs");
    try {
      const auto dtype = DtypeOf(view->type);
      if (!dtype) return PyErr_Format(PyExc_BufferError, "NumPy has no dtype for this array");
      std::vector<py::ssize_t> strides(view->strides.begin(), view->strides.end());
      for (py::ssize_t& stride : strides) stride *= dtype->itemsize();
      py::array array = view->data == nullptr
                            ? py::array(*dtype, view->shape)
                            : py::array(*dtype, view->shape, std::move(strides), view->data, py::handle(object));
      if (view->read_only) py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
      return array.release().ptr();
    } catch (py::error_already_set& error) {
      return error.restore(), nullptr;
    }
  });
}

}  // namespace arraybridge::python
