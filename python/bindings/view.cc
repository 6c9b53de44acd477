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
  const Ref module(PyImport_ImportModule("arraybridge.integrations.array_api"));
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
  const Ref module(PyImport_ImportModule("arraybridge.broker.facts"));
  const Ref device(DeviceName(self));
  if (module == nullptr || device == nullptr) return nullptr;
  return PyObject_CallMethod(module.get(), "table_of_view", "OOs", self, device.get(), HolderOf(Self(self)));
}

template <class Function>
PyCFunction Method(Function function) {  // methods with other argument lists; the flags describe them
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef g_methods[] = {
    {"__dlpack__", Method(ViewDlpack), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA DLPack capsule of "
     "this memory."},
    {"__dlpack_device__", ViewDlpackDevice, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nThe DLPack device: (type, id)."},
    {"__array__", Method(ViewArray), METH_VARARGS | METH_KEYWORDS,
     "__array__($self, /, dtype=None, copy=None)\n--\n\nAn ndarray over this memory."},
    {"__array_namespace__", Method(ArrayNamespace), METH_VARARGS | METH_KEYWORDS,
     "__array_namespace__($self, /, *, api_version=None)\n--\n\nThe array API standard's functions for it."},
    {"__arrow_c_array__", Method(ViewArrowArray), METH_VARARGS | METH_KEYWORDS,
     "__arrow_c_array__($self, /, requested_schema=None)\n--\n\nThis memory as an Arrow array: capsules of schema and "
     "array."},
    {"__arrow_c_device_array__", Method(ViewArrowDeviceArray), METH_VARARGS | METH_KEYWORDS,
     "__arrow_c_device_array__($self, /, requested_schema=None, **kwargs)\n--\n\nThe same, also of memory on a GPU."},
    {"complete", Complete, METH_NOARGS,
     "complete($self, /)\n--\n\nThe same memory, once what its producer has queued has ended. Waits."},
    {"for_immutable_consumer", ForImmutableConsumer, METH_NOARGS,
     "for_immutable_consumer($self, /)\n--\n\nThe same memory, or a copy where its address is no multiple of 64; an "
     "unversioned capsule of it may alias read-only bytes."},
    {"immutable_capsule", ImmutableCapsule, METH_NOARGS,
     "immutable_capsule($self, /)\n--\n\nfor_immutable_consumer().__dlpack__(), for host memory."},
    {"plain", Plain, METH_NOARGS,
     "plain($self, /)\n--\n\nThe same memory, for a consumer that is known: its DLPack exports are the memory itself."},
    {"protected", Method(Protect), METH_VARARGS | METH_KEYWORDS,
     "protected($self, /, constant=False, origin=None)\n--\n\nThe same memory, for consumers that are not known: no "
     "write "
     "through DLPack reaches it where it is read-only."},
    {"copy_on_write", CopyOnWrite, METH_NOARGS,
     "copy_on_write($self, /)\n--\n\nThe bytes of a share in a copy-on-write mapping of their own; None of other "
     "memory."},
    {"named", Method(Named), METH_VARARGS | METH_KEYWORDS,
     "named($self, /, dtype, code=None)\n--\n\nThe same memory under another dtype name, and code of the same width."},
    {"as_bytes", AsBytes, METH_NOARGS,
     "as_bytes($self, /)\n--\n\nThe same compact memory as uint8: the last dimension has the bytes of a row; one "
     "dimension where rows are no whole bytes."},
    {"to_device", Method(ToDevice), METH_VARARGS | METH_KEYWORDS,
     "to_device($self, device, /, *, stream=None)\n--\n\nThe array there, as the array API standard has it."},
    {"_repr_html_", ReprHtml, METH_NOARGS, nullptr},
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef g_attributes[] = {
    {"shape", Shape, nullptr, "elements", nullptr},
    {"strides", Strides, nullptr, "elements", nullptr},
    {"dtype", Dtype, nullptr, "NumPy's dtype; its logical name where NumPy has none", nullptr},
    {"dtype_name", DtypeName, nullptr, "logical name; empty if it has none", nullptr},
    {"dtype_code", DtypeCode, nullptr, "DLPack code, bits, lanes", nullptr},
    {"ndim", Rank, nullptr, nullptr, nullptr},
    {"size", Size, nullptr, "elements", nullptr},
    {"nbytes", Bytes, nullptr, "bytes when compact", nullptr},
    {"address", Address, nullptr, "of the first element; 0 if there is none", nullptr},
    {"device", DeviceOf, nullptr, "DLPack type and id", nullptr},
    {"read_only", ReadOnly, nullptr, nullptr, nullptr},
    {"constant", Constant, nullptr, "no process writes these bytes any more", nullptr},
    {"traits", Traits, nullptr, "what a plan needs to know, as one number; None but of compact host memory", nullptr},
    {"compact", Compact, nullptr, "row-major without gaps", nullptr},
    {"__array_interface__", ViewArrayInterface, nullptr, "version 3; host memory only", nullptr},
    {"__cuda_array_interface__", ViewCudaArrayInterface, nullptr, "version 3; memory of a GPU only", nullptr},
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
      {Py_tp_doc, const_cast<char*>("Memory as frameworks see it: DLPack in both dialects, buffer, array interface.")},
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
