// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/view.h"

#include <arraybridge/device.h>
#include <structmember.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>

#include "proto/boundary/text.h"
#include "python/bindings/python_owner.h"

namespace arraybridge::python {

namespace {

PyTypeObject* g_view_type = nullptr;  // set once, under the import lock; lives as long as the process

const View& Self(PyObject* self) { return reinterpret_cast<ViewObject*>(self)->view; }

void Dealloc(PyObject* self) {
  auto* object = reinterpret_cast<ViewObject*>(self);
  if (object->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  PyTypeObject* type = Py_TYPE(self);
  object->view.~View();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* Shape(PyObject* self, void*) { return TupleOf(Self(self).shape); }
PyObject* Strides(PyObject* self, void*) { return TupleOf(Self(self).strides); }
PyObject* DtypeName(PyObject* self, void*) { return PyUnicode_FromString(Self(self).dtype.c_str()); }
PyObject* DtypeCode(PyObject* self, void*) {
  const DataType type = Self(self).type;
  return Py_BuildValue("(iii)", int{type.code}, int{type.bits}, int{type.lanes});
}
PyObject* Rank(PyObject* self, void*) { return PyLong_FromSize_t(Self(self).shape.size()); }
PyObject* Size(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(Self(self).elements()); }
PyObject* Bytes(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(Self(self).nbytes()); }
PyObject* Address(PyObject* self, void*) { return PyLong_FromVoidPtr(Self(self).data); }
PyObject* DeviceOf(PyObject* self, void*) { return ViewDlpackDevice(self, nullptr); }
PyObject* ReadOnly(PyObject* self, void*) { return PyBool_FromLong(Self(self).read_only); }
PyObject* Constant(PyObject* self, void*) { return PyBool_FromLong(Self(self).constant); }
PyObject* Compact(PyObject* self, void*) { return PyBool_FromLong(Self(self).compact()); }

PyObject* Traits(PyObject* self, void*) {
  const auto traits = TraitsOf(Self(self));
  if (!traits.has_value()) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong(*traits);
}

// A function of the package's module for the array API standard, which is implemented in Python. nullptr with a Python
// error.
Ref ArrayApi(const char* function) {
  const Ref module(PyImport_ImportModule("arraybridge.array_api"));
  return Ref(module == nullptr ? nullptr : PyObject_GetAttrString(module.get(), function));
}

// An object, not a name, because consumers look it up in tables of their own.
PyObject* Dtype(PyObject* self, void*) {
  const Ref dtype_of = ArrayApi("dtype_of");
  const Ref name(DtypeName(self, nullptr));
  if (dtype_of == nullptr || name == nullptr) return nullptr;
  return PyObject_CallOneArg(dtype_of.get(), name.get());
}

PyObject* ArrayNamespace(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"api_version", nullptr};
  PyObject* version = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$O:__array_namespace__", const_cast<char**>(names), &version))
    return nullptr;
  const Ref namespace_of = ArrayApi("namespace_of");
  return namespace_of == nullptr ? nullptr : PyObject_CallFunctionObjArgs(namespace_of.get(), self, version, nullptr);
}

// For consumers that accept no stream. A complete View is returned itself.
PyObject* Complete(PyObject* self, PyObject*) {
  if (!Self(self).stream.has_value() && !Self(self).fence) return Py_NewRef(self);
  return Guarded<>(static_cast<PyObject*>(nullptr), [self]() -> PyObject* {
    View view = Self(self);
    const Status waited = WithoutGil([&view] { return WaitForProducer(view); });
    if (!waited.ok()) return RaiseBuffer(waited);
    view.stream.reset();
    view.fence.reset();
    return NewView(std::move(view));
  });
}

// TensorFlow does not check the alignment, and its first operation on unaligned memory ends the process.
PyObject* ForImmutableConsumer(PyObject* self, PyObject*) {
  return Guarded<>(static_cast<PyObject*>(nullptr), [self]() -> PyObject* {
    constexpr uintptr_t kAlignment = 64;
    View view = Self(self);
    if (view.device.type == kDeviceCpu && reinterpret_cast<uintptr_t>(view.data) % kAlignment != 0) {
      auto copy = AlignedCopy(self);
      if (!copy.has_value()) return nullptr;
      view = *std::move(copy);
    }
    view.legacy_may_alias_read_only = true;
    return NewView(std::move(view));
  });
}

// Returns the View itself if no flag would change.
PyObject* Plain(PyObject* self, PyObject*) {
  if (!Self(self).guarded) return Py_NewRef(self);
  return Guarded<>(static_cast<PyObject*>(nullptr), [self] {
    View view = Self(self);
    view.guarded = false;
    return NewView(std::move(view));
  });
}

PyObject* CopyOnWrite(PyObject* self, PyObject*) {
  if (Self(self).copy_on_write == nullptr) Py_RETURN_NONE;
  return Guarded<>(static_cast<PyObject*>(nullptr), [self]() -> PyObject* {
    auto own = OwnMapping(Self(self));
    return own.has_value() ? NewView(*std::move(own)) : nullptr;
  });
}

PyObject* Protect(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"constant", "origin", nullptr};
  int constant = 0;
  PyObject* origin = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|pO:protected", const_cast<char**>(names), &constant, &origin))
    return nullptr;
  const View* const whole = origin == Py_None ? nullptr : ViewOf(origin);
  if (whole == nullptr && origin != Py_None) return nullptr;
  return Guarded<>(static_cast<PyObject*>(nullptr), [&] {
    View view = Self(self);
    view.guarded = true;
    view.constant |= constant != 0;
    if (whole != nullptr && view.read_only && whole->copy_on_write != nullptr && LiesIn(view, *whole)) {
      view.owner = whole->owner;
      view.constant = whole->constant;
      view.copy_on_write = whole->copy_on_write;
    }
    return NewView(std::move(view));
  });
}

PyObject* ImmutableCapsule(PyObject* self, PyObject*) {
  return Guarded<>(static_cast<PyObject*>(nullptr), [self] { return ViewLegacyCapsule(Self(self)); });
}

PyObject* Named(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"dtype", "code", nullptr};
  const char* dtype = nullptr;
  PyObject* code = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s|O:named", const_cast<char**>(names), &dtype, &code))
    return nullptr;
  DataType type = Self(self).type;
  if (code != Py_None) {
    const DataType before = type;
    if (!PyTuple_Check(code)) return PyErr_Format(PyExc_TypeError, "code must be a tuple (code, bits, lanes)");
    if (!PyArg_ParseTuple(code, "bbH", &type.code, &type.bits, &type.lanes)) return nullptr;
    if (type.bits != before.bits || type.lanes != before.lanes)
      return PyErr_Format(PyExc_ValueError, "a code of %d bits and %d lanes for elements of %d bits and %d lanes",
                          int{type.bits}, int{type.lanes}, int{before.bits}, int{before.lanes});
  }
  return Guarded<>(static_cast<PyObject*>(nullptr), [&] {
    View view = Self(self);
    view.type = type;
    view.dtype = dtype;
    return NewView(std::move(view));
  });
}

// The last dimension has the bytes of a row. Rows that are no whole bytes become one dimension.
PyObject* AsBytes(PyObject* self, PyObject*) {
  const View& source = Self(self);
  if (!source.compact())
    return PyErr_Format(PyExc_ValueError, "the bytes of an array with gaps are not one after another");
  return Guarded<>(static_cast<PyObject*>(nullptr), [&] {
    View view = source;
    const int64_t bits = int64_t{source.type.bits} * source.type.lanes;
    if (!view.shape.empty() && view.shape.back() * bits % 8 == 0)
      view.shape.back() = view.shape.back() * bits / 8;
    else
      view.shape = {static_cast<int64_t>(source.nbytes())};
    view.strides = CompactStrides(view.shape);
    view.type = {1, 8, 1};
    view.dtype = "uint8";
    return NewView(std::move(view));
  });
}

PyObject* ToDevice(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"", "stream", nullptr};
  PyObject* device = nullptr;
  PyObject* stream = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$O:to_device", const_cast<char**>(names), &device, &stream))
    return nullptr;
  const Ref to_device = ArrayApi("to_device");
  return to_device == nullptr ? nullptr : PyObject_CallFunctionObjArgs(to_device.get(), self, device, stream, nullptr);
}

PyObject* Reduce(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError, "a View cannot be pickled or copied: put it, and pickle the Share");
  return nullptr;
}

// "cpu", "cuda:0", "device type 4:0".
PyObject* DeviceName(PyObject* self) {
  const Ref device(DeviceOf(self, nullptr));
  int type = 0;
  int id = 0;
  if (device == nullptr || !PyArg_ParseTuple(device.get(), "ii", &type, &id)) return nullptr;
  if (type == kDeviceCpu) return PyUnicode_FromString("cpu");
  if (type == kDeviceCuda) return PyUnicode_FromFormat("cuda:%d", id);
  return PyUnicode_FromFormat("device type %d:%d", type, id);
}

// Only a mapping of a share can be made again as copy-on-write.
const char* HolderOf(const View& view) { return view.copy_on_write != nullptr ? "a share" : ""; }

PyObject* Repr(PyObject* self) {
  const View& view = Self(self);
  const Ref shape(Shape(self, nullptr));
  const Ref device(DeviceName(self));
  if (shape == nullptr || device == nullptr) return nullptr;
  const char* const holder = HolderOf(view);
  return PyUnicode_FromFormat("<View %s %R on %U, %llu bytes, %s%s%s>",
                              view.dtype.empty() ? "unnamed dtype" : ShownDtype(view).c_str(), shape.get(),
                              device.get(), static_cast<unsigned long long>(view.nbytes()),
                              view.read_only ? "read-only" : "writable", *holder == '\0' ? "" : ", memory of ", holder);
}

PyObject* ReprHtml(PyObject* self, PyObject*) {
  const Ref module(PyImport_ImportModule("arraybridge.notebook.facts"));
  const Ref device(DeviceName(self));
  if (module == nullptr || device == nullptr) return nullptr;
  return PyObject_CallMethod(module.get(), "table_of_view", "OOs", self, device.get(), HolderOf(Self(self)));
}

template <class Function>
PyCFunction Method(Function function) {  // methods with other argument lists; the flags describe them
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

constexpr char kDoc[] =
    "An array in memory that every framework can read: it exports DLPack in both dialects, the buffer protocol, and\n"
    "the array interfaces of NumPy and CUDA. It keeps the memory, and its shape never changes. `asdlpack`,\n"
    "`Share.view` and `Bundle` make Views; the class cannot be called. A View cannot be pickled: put it.\n\n"
    "Example:\n"
    "    >>> view = arraybridge.asdlpack(np.ones((2, 3), \"float32\"))\n"
    "    >>> view.shape, view.strides, view.nbytes    # elements, elements, bytes\n"
    "    ((2, 3), (3, 1), 24)\n"
    "    >>> np.asarray(view).tolist()\n"
    "    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]\n";

PyMethodDef g_methods[] = {
    {"__dlpack__", Method(ViewDlpack), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule of this memory, as the array API standard of 2023.12 has it.\n\n"
     "Args:\n"
     "    stream: of the consumer, for memory of a GPU: -1, 1, 2 or the address of a CUDA stream.\n"
     "    max_version: of DLPack; from (1, 0) on the capsule is versioned, and carries the read-only flag.\n"
     "    dl_device: that of the View, or (1, 0) for a copy in host memory.\n"
     "    copy: True: a copy; False: share or raise; None: share if possible.\n\n"
     "Raises:\n"
     "    BufferError: DLPack lacks the dtype, a copy is needed and forbidden, or another device.\n"
     "    ValueError: no such stream. TypeError: another argument."},
    {"__dlpack_device__", ViewDlpackDevice, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nDLPack's (type, id): the attribute `device`."},
    {"__array__", Method(ViewArray), METH_VARARGS | METH_KEYWORDS,
     "__array__($self, /, dtype=None, copy=None)\n--\n\n"
     "An ndarray over this memory, read-only if the View is.\n\n"
     "Args:\n"
     "    dtype: another one needs a copy.\n"
     "    copy: True: a copy; False: share or raise; None: share if possible.\n\n"
     "Raises:\n"
     "    TypeError: memory of a GPU, or a dtype that NumPy lacks.\n"
     "    ValueError: a copy is needed and forbidden."},
    {"__array_namespace__", Method(ArrayNamespace), METH_VARARGS | METH_KEYWORDS,
     "__array_namespace__($self, /, *, api_version=None)\n--\n\n"
     "NumPy's functions, which accept Views of host memory: the array API standard's.\n\n"
     "Raises:\n"
     "    UnsupportedArray: (a TypeError) memory of a GPU.\n"
     "    ValueError: NumPy does not support this version of the standard."},
    {"__arrow_c_array__", Method(ViewArrowArray), METH_VARARGS | METH_KEYWORDS,
     "__arrow_c_array__($self, /, requested_schema=None)\n--\n\n"
     "Capsules of Arrow's schema and array, over the same memory, for pyarrow and polars.\n\n"
     "Raises:\n"
     "    BufferError: not host memory of one dimension without gaps, of int8 to int64, uint8 to uint64, or\n"
     "        float16 to float64."},
    {"__arrow_c_device_array__", Method(ViewArrowDeviceArray), METH_VARARGS | METH_KEYWORDS,
     "__arrow_c_device_array__($self, /, requested_schema=None, **kwargs)\n--\n\n"
     "The same, also of memory on a GPU. Waits for the work of its producer."},
    {"complete", Complete, METH_NOARGS,
     "complete($self, /)\n--\n\n"
     "The same memory, after the work of its producer on a GPU has ended. Waits for it.\n\n"
     "Raises:\n"
     "    BufferError: the GPU or its driver failed, or the producer's process died before."},
    {"for_immutable_consumer", ForImmutableConsumer, METH_NOARGS,
     "for_immutable_consumer($self, /)\n--\n\n"
     "The same memory for a consumer that does not write (JAX, TensorFlow): its unversioned capsules may share\n"
     "read-only bytes. If the address is not a multiple of 64 bytes, this is a copy, reported by a CopyWarning."},
    {"immutable_capsule", ImmutableCapsule, METH_NOARGS,
     "immutable_capsule($self, /)\n--\n\n"
     "for_immutable_consumer().__dlpack__() in one step, without the check of the address."},
    {"plain", Plain, METH_NOARGS,
     "plain($self, /)\n--\n\n"
     "The same memory for a consumer that respects the read-only flag: DLPack exports it as it is."},
    {"protected", Method(Protect), METH_VARARGS | METH_KEYWORDS,
     "protected($self, /, constant=False, origin=None)\n--\n\n"
     "The same memory for any consumer: no write through DLPack reaches read-only bytes. Memory of a share is\n"
     "exported as a copy-on-write mapping, other memory as a copy.\n\n"
     "Args:\n"
     "    constant: no process writes these bytes any more.\n"
     "    origin: the View of a share whose memory may contain these bytes."},
    {"copy_on_write", CopyOnWrite, METH_NOARGS,
     "copy_on_write($self, /)\n--\n\n"
     "The bytes of a share in host memory, in a writable copy-on-write mapping of their own; None for other memory.\n\n"
     "Raises:\n"
     "    BufferError: no mapping can be made."},
    {"named", Method(Named), METH_VARARGS | METH_KEYWORDS,
     "named($self, /, dtype, code=None)\n--\n\n"
     "The same memory with another logical dtype name, and a code of the same width.\n\n"
     "Raises:\n"
     "    ValueError: a code of another width."},
    {"as_bytes", AsBytes, METH_NOARGS,
     "as_bytes($self, /)\n--\n\n"
     "The same memory as uint8: the last dimension has the bytes of a row; one dimension if a row is no whole number\n"
     "of bytes.\n\n"
     "Raises:\n"
     "    ValueError: the View is not compact."},
    {"to_device", Method(ToDevice), METH_VARARGS | METH_KEYWORDS,
     "to_device($self, device, /, *, stream=None)\n--\n\n"
     "The array on the device, as the array API standard has it: this View, if it lies there, or a copy in host "
     "memory.\n\n"
     "Args:\n"
     "    device: the attribute `device` of the View, \"cpu\" or \"cuda:0\".\n"
     "    stream: ignored; the copy is complete.\n\n"
     "Raises:\n"
     "    UnsupportedArray: (a TypeError) another device."},
    {"_repr_html_", ReprHtml, METH_NOARGS, nullptr},
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef g_attributes[] = {
    {"shape", Shape, nullptr, "The sizes of its dimensions, in elements: (2, 3). A tuple of ints.", nullptr},
    {"strides", Strides, nullptr,
     "The distances between neighbours in each dimension, in elements, not bytes: (3, 1). They may be negative or 0.",
     nullptr},
    {"dtype", Dtype, nullptr,
     "NumPy's dtype; ml_dtypes' if NumPy has none (bfloat16, float8). The logical name, a str, if neither is "
     "installed.",
     nullptr},
    {"dtype_name", DtypeName, nullptr, "The logical name of its dtype: \"float32\", \"bfloat16\"; \"\" if it has none.",
     nullptr},
    {"dtype_code", DtypeCode, nullptr,
     "DLPack's code of the dtype, the bits of an element, and the lanes: (2, 32, 1) for float32.", nullptr},
    {"ndim", Rank, nullptr, "The number of its dimensions, 0 to 64.", nullptr},
    {"size", Size, nullptr, "The number of its elements.", nullptr},
    {"nbytes", Bytes, nullptr, "The bytes of its elements, without the gaps between them.", nullptr},
    {"address", Address, nullptr, "The address of its first element in this process; 0 if it has no elements.",
     nullptr},
    {"device", DeviceOf, nullptr, "DLPack's (type, id): (1, 0) is host memory, (2, 1) the GPU cuda:1 of this process.",
     nullptr},
    {"read_only", ReadOnly, nullptr,
     "True if its consumers must not write. The buffer protocol and NumPy refuse writes.", nullptr},
    {"constant", Constant, nullptr, "True if no process writes these bytes any more.", nullptr},
    {"traits", Traits, nullptr,
     "One number for the dtype, the alignment, the dimensions and the read-only flag of compact host memory: arrays "
     "with\n"
     "equal numbers are converted in the same way. None for other memory.",
     nullptr},
    {"compact", Compact, nullptr, "True if its elements lie in row-major order (C order), without gaps.", nullptr},
    {"__array_interface__", ViewArrayInterface, nullptr,
     "NumPy's array interface, version 3, a dict.\n\n"
     "Raises:\n"
     "    AttributeError: memory of a GPU, or a dtype that the interface lacks.",
     nullptr},
    {"__cuda_array_interface__", ViewCudaArrayInterface, nullptr,
     "The CUDA array interface, version 3, a dict.\n\n"
     "Raises:\n"
     "    AttributeError: host memory, or a dtype that the interface lacks.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef g_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ViewObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

// The table as a capsule, and as the int of DLPack 1.2.
int AddExchangeTable(PyObject* type) {
  void* table = const_cast<void*>(ExchangeTable());
  const Ref capsule(PyCapsule_New(table, ExchangeNames::kCapsule, nullptr));
  const Ref address(PyLong_FromVoidPtr(table));
  if (capsule == nullptr || address == nullptr) return -1;
  if (PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule.get()) < 0) return -1;
  return PyObject_SetAttrString(type, "__c_dlpack_exchange_api__", address.get());
}

}  // namespace

int AddViewType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, Slot(Dealloc)},
      {Py_tp_repr, Slot(Repr)},
      {Py_tp_methods, g_methods},
      {Py_tp_getset, g_attributes},
      {Py_tp_members, g_members},
      {Py_bf_getbuffer, Slot(ViewGetBuffer)},
      {Py_bf_releasebuffer, Slot(ViewReleaseBuffer)},
      {Py_tp_doc, const_cast<char*>(kDoc)},
      {0, nullptr},
  };
  PyType_Spec spec{"arraybridge._core.View", sizeof(ViewObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  if (InternDlpackNames() < 0) return -1;
  Ref type(PyType_FromSpec(&spec));
  if (type == nullptr || AddExchangeTable(type.get()) < 0) return -1;
  g_view_type = reinterpret_cast<PyTypeObject*>(type.release());
  g_view_type->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;  // set last, because the table must be added to the type first
  PyType_Modified(g_view_type);
  return PyModule_AddObjectRef(module, "View", reinterpret_cast<PyObject*>(g_view_type));
}

PyObject* NewView(View&& view) {
  ViewObject* const self = PyObject_New(ViewObject, g_view_type);
  if (self == nullptr) return nullptr;
  new (&self->view) View(std::move(view));
  self->weak_references = nullptr;
  return reinterpret_cast<PyObject*>(self);
}

bool IsView(PyObject* object) { return Py_TYPE(object) == g_view_type; }

const View* ViewOf(PyObject* object) {
  if (IsView(object)) return &Self(object);
  PyErr_Format(PyExc_TypeError, "expected a View, not %.100s", Py_TYPE(object)->tp_name);
  return nullptr;
}

std::string ShownDtype(const View& view) { return Printable(view.dtype); }

std::optional<uint64_t> TraitsOf(const View& view) {
  if (view.device.type != kDeviceCpu || !view.compact() || !DlpackSays(view)) return std::nullopt;
  return TraitsOf(view.type, view.data, view.read_only, view.shape.size());
}

// Of a page, at most.
uint64_t AlignmentOf(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return static_cast<uint64_t>(address == 0 ? 12 : std::min(std::countr_zero(address), 12));
}

uint64_t TraitsOf(DataType type, const void* data, bool read_only, size_t rank) {
  const uint64_t empty = data == nullptr ? 1 : 0;
  return uint64_t{type.code} | uint64_t{type.bits} << 8U | uint64_t{type.lanes} << 16U | uint64_t{read_only} << 32U |
         empty << 33U | AlignmentOf(data) << 34U | uint64_t{rank} << 40U;
}

PyObject* TupleOf(const std::vector<int64_t>& values) {
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  if (tuple == nullptr) return nullptr;
  for (size_t i = 0; i < values.size(); ++i) {
    PyObject* value = PyLong_FromLongLong(values[i]);
    if (value == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), value);
  }
  return tuple.release();
}

}  // namespace arraybridge::python
