// SPDX-License-Identifier: Apache-2.0
// A View as buffer (PEP 3118), __array_interface__ (version 3) and ndarray, for the dtypes that these support: not
// bfloat16, fp8 and similar ones.
#include <cstdlib>

#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

struct Word {
  DataType type;
  const char* format;   // PEP 3118, native
  const char* typestr;  // array interface, little endian
};

constexpr Word kWords[] = {
    {{2, 32, 1}, "f", "<f4"},  {{2, 64, 1}, "d", "<f8"},    {{1, 8, 1}, "B", "|u1"},  {{0, 64, 1}, "l", "<i8"},
    {{0, 32, 1}, "i", "<i4"},  {{6, 8, 1}, "?", "|b1"},     {{2, 16, 1}, "e", "<f2"}, {{0, 8, 1}, "b", "|i1"},
    {{0, 16, 1}, "h", "<i2"},  {{1, 16, 1}, "H", "<u2"},    {{1, 32, 1}, "I", "<u4"}, {{1, 64, 1}, "L", "<u8"},
    {{5, 64, 1}, "Zf", "<c8"}, {{5, 128, 1}, "Zd", "<c16"},
};

const Word* WordOf(DataType type) {
  for (const Word& word : kWords)
    if (word.type == type) return &word;
  return nullptr;
}

const View& Self(PyObject* self) { return reinterpret_cast<ViewObject*>(self)->view; }

std::vector<int64_t> ByteStrides(const View& view) {
  std::vector<int64_t> strides = view.strides;
  for (int64_t& stride : strides) stride *= view.type.bits / 8;
  return strides;
}

int Refuse(Py_buffer* buffer, const char* why) {
  buffer->obj = nullptr;
  PyErr_SetString(PyExc_BufferError, why);
  return -1;
}

// Fills all fields; those that the consumer did not request are removed afterwards.
bool Fill(PyObject* self, const Word& word, Py_buffer* buffer) {
  static char nothing;  // some consumers refuse NULL even for no bytes
  const View& view = Self(self);
  const size_t rank = view.shape.size();
  auto* strides = static_cast<Py_ssize_t*>(std::calloc(rank + 1, sizeof(Py_ssize_t)));
  if (strides == nullptr) return false;
  for (size_t i = 0; i < rank; ++i) strides[i] = view.strides[i] * (view.type.bits / 8);
  buffer->buf = view.data == nullptr ? &nothing : view.data;
  buffer->len = static_cast<Py_ssize_t>(view.nbytes());
  buffer->itemsize = view.type.bits / 8;
  buffer->readonly = view.read_only;
  buffer->ndim = static_cast<int>(rank);
  buffer->format = const_cast<char*>(word.format);
  buffer->shape = const_cast<Py_ssize_t*>(reinterpret_cast<const Py_ssize_t*>(view.shape.data()));
  buffer->strides = strides;
  buffer->suboffsets = nullptr;
  buffer->internal = strides;
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  return true;
}

// nullptr if the consumer can read the layout.
const char* LayoutRefusal(const Py_buffer& buffer, int flags) {
  const auto asks = [flags](int wish) { return (flags & wish) == wish; };
  if (asks(PyBUF_C_CONTIGUOUS) && !PyBuffer_IsContiguous(&buffer, 'C')) return "memory is not C-contiguous";
  if (asks(PyBUF_F_CONTIGUOUS) && !PyBuffer_IsContiguous(&buffer, 'F')) return "memory is not Fortran-contiguous";
  if (asks(PyBUF_ANY_CONTIGUOUS) && !PyBuffer_IsContiguous(&buffer, 'A')) return "memory is not contiguous";
  if (!asks(PyBUF_STRIDES) && !PyBuffer_IsContiguous(&buffer, 'C')) return "memory is strided; ask for strides";
  return nullptr;
}

// The common part of both array interfaces. AttributeError if they lack the dtype, so that hasattr is correct.
Ref Interface(PyObject* self, const char* name) {
  const View& view = Self(self);
  const Word* word = WordOf(view.type);
  if (word == nullptr) {
    PyErr_Format(PyExc_AttributeError, "%s has no type string for dtype '%s'", name, ShownDtype(view).c_str());
    return nullptr;
  }
  Ref strides(view.compact() ? Py_NewRef(Py_None) : TupleOf(ByteStrides(view)));
  Ref shape(TupleOf(view.shape));
  if (strides == nullptr || shape == nullptr) return nullptr;
  return Ref(Py_BuildValue("{s:N,s:s,s:(NO),s:N,s:i}", "shape", shape.release(), "typestr", word->typestr, "data",
                           PyLong_FromVoidPtr(view.data), view.read_only ? Py_True : Py_False, "strides",
                           strides.release(), "version", 3));
}

}  // namespace

int ViewGetBuffer(PyObject* self, Py_buffer* buffer, int flags) {
  const View& view = Self(self);
  buffer->obj = nullptr;
  if (view.device.type != kDeviceCpu) return Refuse(buffer, "memory of a GPU is no buffer: copy it to the host first");
  const Word* word = WordOf(view.type);
  if (word == nullptr) {
    PyErr_Format(PyExc_BufferError, "the buffer protocol has no format for dtype '%s'", ShownDtype(view).c_str());
    return -1;
  }
  if ((flags & PyBUF_WRITABLE) != 0 && view.read_only) return Refuse(buffer, "memory is read-only");
  if (!Fill(self, *word, buffer)) return Refuse(buffer, "no memory for the strides");
  if (const char* why = LayoutRefusal(*buffer, flags); why != nullptr) {
    std::free(buffer->internal);
    return Refuse(buffer, why);
  }
  if ((flags & PyBUF_FORMAT) == 0) buffer->format = nullptr;
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) buffer->strides = nullptr;
  if ((flags & PyBUF_ND) == 0) buffer->shape = nullptr;
  Py_INCREF(self);
  buffer->obj = self;
  return 0;
}

void ViewReleaseBuffer(PyObject*, Py_buffer* buffer) { std::free(buffer->internal); }

PyObject* ViewArrayInterface(PyObject* self, void*) {
  return Guarded<>(static_cast<PyObject*>(nullptr), [self]() -> PyObject* {
    if (Self(self).device.type != kDeviceCpu)
      return PyErr_Format(PyExc_AttributeError, "memory of a GPU has no __array_interface__");
    return Interface(self, "__array_interface__").release();
  });
}

PyObject* ViewCudaArrayInterface(PyObject* self, void*) {
  return Guarded<>(static_cast<PyObject*>(nullptr), [self]() -> PyObject* {
    const View& view = Self(self);
    if (view.device.type != kDeviceCuda)
      return PyErr_Format(PyExc_AttributeError, "host memory has no __cuda_array_interface__");
    Ref interface = Interface(self, "__cuda_array_interface__");
    if (interface == nullptr) return nullptr;
    // The consumer does not tell on which stream it will read, and an array with a stream behaves differently: Numba's
    // copies to the host do not wait any more. So this waits for bytes of another process.
    if (!WaitForFence(view)) return nullptr;
    // None: the bytes are complete.
    const Ref stream(view.stream.has_value() ? PyLong_FromUnsignedLongLong(*view.stream) : Py_NewRef(Py_None));
    if (stream == nullptr || PyDict_SetItemString(interface.get(), "stream", stream.get()) < 0) return nullptr;
    return interface.release();
  });
}

// Uses NumPy, which the caller has loaded.
PyObject* ViewArray(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"dtype", "copy", nullptr};
  PyObject* dtype = Py_None;
  PyObject* copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO:__array__", const_cast<char**>(names), &dtype, &copy))
    return nullptr;
  const View& view = Self(self);
  if (view.device.type != kDeviceCpu)
    return PyErr_Format(PyExc_TypeError, "memory of a GPU is no ndarray: copy it to the host first");
  if (WordOf(view.type) == nullptr)
    return PyErr_Format(PyExc_TypeError, "an ndarray cannot hold dtype '%s'", ShownDtype(view).c_str());
  const Ref memory(PyMemoryView_FromObject(self));
  const Ref numpy(PyImport_ImportModule("numpy"));
  if (memory == nullptr || numpy == nullptr) return nullptr;
  const Ref array(PyObject_GetAttrString(numpy.get(), "array"));
  const Ref positional(PyTuple_Pack(1, memory.get()));
  const Ref named(Py_BuildValue("{s:O,s:O}", "dtype", dtype, "copy", copy));
  if (array == nullptr || positional == nullptr || named == nullptr) return nullptr;
  return PyObject_Call(array.get(), positional.get(), named.get());
}

}  // namespace arraybridge::python
