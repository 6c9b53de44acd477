// SPDX-License-Identifier: Apache-2.0
// Makes Views of foreign objects that support DLPack. Does not copy. Values of the producer are untrusted.
#include <arraybridge/device.h>
#include <dlpack/dlpack.h>

#include "python/bindings/exchange.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

// The name determines the dialect. The capsule is renamed last; until then it owns the tensor.
template <class Tensor>
PyObject* Consume(PyObject* capsule, const char* live, const char* used) {
  auto* tensor = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, live));
  // Its producer got the legacy default stream, or may assume it.
  PyObject* view = Adopt(tensor, kLegacyStream);
  if (view != nullptr) PyCapsule_SetName(capsule, used);
  return view;
}

// For an unused capsule; false for another major version, whose fields are unknown.
bool HoldsGpuMemory(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor"))
    return OnGpu(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->dl_tensor);
  if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return false;
  const auto* tensor = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
  return tensor->version.major == DLPACK_MAJOR_VERSION && OnGpu(tensor->dl_tensor);
}

PyObject* FromCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    return Consume<DLManagedTensorVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
  if (PyCapsule_IsValid(capsule, "dltensor")) return Consume<DLManagedTensor>(capsule, "dltensor", "used_dltensor");
  const char* name = PyCapsule_GetName(capsule);
  PyErr_Clear();
  return PyErr_Format(PyExc_BufferError, "a capsule named '%.100s' is no live DLPack capsule",
                      name == nullptr ? "" : name);
}

PyObject* FromTable(const DLPackExchangeAPI& table, PyObject* object) {
  DLManagedTensorVersioned* tensor = nullptr;
  if (table.managed_tensor_from_py_object_no_sync(object, &tensor) != 0) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_BufferError, "the exchange API failed without an error");
    return nullptr;
  }
  void* stream = nullptr;
  bool is_producers = false;
  if (tensor->version.major == DLPACK_MAJOR_VERSION && OnGpu(tensor->dl_tensor) &&
      table.current_work_stream != nullptr) {
    is_producers = table.current_work_stream(kDLCUDA, tensor->dl_tensor.device.device_id, &stream) == 0;
    if (!is_producers) {
      PyErr_Clear();
      stream = nullptr;
    }
  }
  PyObject* view = Adopt(tensor, stream == nullptr ? kLegacyStream : reinterpret_cast<uintptr_t>(stream), is_producers);
  if (view == nullptr) DeleteTensor(tensor);  // refused, so this function must delete it
  return view;
}

// Created once, because the call is hot.
struct CallNames {
  PyObject* method = PyUnicode_InternFromString("__dlpack__");
  PyObject* keywords = Py_BuildValue("(N)", PyUnicode_InternFromString("max_version"));
  PyObject* version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  PyObject* with_stream =
      Py_BuildValue("(NN)", PyUnicode_InternFromString("max_version"), PyUnicode_InternFromString("stream"));
  PyObject* stream_alone = Py_BuildValue("(N)", PyUnicode_InternFromString("stream"));
  PyObject* legacy_stream = PyLong_FromUnsignedLongLong(kLegacyStream);
};
const CallNames& Names() {
  static const CallNames names;
  return names;
}

// Older producers lack max_version and raise TypeError, TensorFlow RuntimeError. True: retry without it.
bool Refused(PyObject* capsule) {
  if (capsule != nullptr) return false;
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)) return false;
  PyErr_Clear();
  return true;
}

// Orders the producer before the legacy default stream. Not every producer assumes that stream if it gets none.
PyObject* CallForGpu(PyObject* method) {
  PyObject* const both[] = {Names().version, Names().legacy_stream};
  PyObject* capsule = PyObject_Vectorcall(method, both, 0, Names().with_stream);
  if (Refused(capsule)) capsule = PyObject_Vectorcall(method, &both[1], 0, Names().stream_alone);
  // TensorFlow accepts no stream, and has waited.
  return Refused(capsule) ? PyObject_CallNoArgs(method) : capsule;
}

// REQUIRES: the object has the method.
PyObject* CallDlpack(PyObject* object) {
  PyObject* const values[] = {object, Names().version};
  PyObject* capsule = PyObject_VectorcallMethod(Names().method, values, 1, Names().keywords);
  if (Refused(capsule)) capsule = PyObject_CallMethodNoArgs(object, Names().method);
  if (capsule == nullptr || !PyCapsule_CheckExact(capsule) || !HoldsGpuMemory(capsule)) return capsule;
  // Checked afterwards, so that host arrays, which are most, need one call.
  Py_DECREF(capsule);
  const Ref method(PyObject_GetAttr(object, Names().method));
  return method == nullptr ? nullptr : CallForGpu(method.get());
}

// The function of an Exchanger object: `self` is the type.
PyObject* ExchangeTo(PyObject* type, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    const View* view = ViewOf(object);
    if (view == nullptr || !CheckDlpackSays(*view)) return nullptr;
    if (view->device.type != kDeviceCpu) return PyErr_Format(PyExc_TypeError, "no host memory");
    DLManagedTensorVersioned* tensor = ExportVersioned(*view);
    PyObject* made = ExchangeTensor(reinterpret_cast<PyTypeObject*>(type), tensor);
    if (made != nullptr) return made;
    DeleteTensor(tensor);  // a second call of the deleter does nothing
    return nullptr;
  });
}

// The function of a Capsuled object: `self` is the function.
PyObject* CapsuleTo(PyObject* take, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    const View* view = ViewOf(object);
    return view == nullptr ? nullptr : TakeCapsule(take, *view);
  });
}

}  // namespace

PyObject* Wrap(PyObject*, PyObject* object) {
  if (IsView(object)) return Py_NewRef(object);
  if (PyCapsule_CheckExact(object)) return FromCapsule(object);
  if (const DLPackExchangeAPI* table = TableOf(Py_TYPE(object)); table != nullptr) return FromTable(*table, object);
  // A method of the class is called without binding; any other attribute is read from the object.
  PyObject* const found = _PyType_Lookup(Py_TYPE(object), Names().method);
  if (found == nullptr || !PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
    const Ref method(PyObject_GetAttr(object, Names().method));
    if (method == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
      return PyErr_Format(PyExc_TypeError, "%.100s does not speak DLPack", Py_TYPE(object)->tp_name);
    }
  }
  const Ref capsule(CallDlpack(object));
  if (capsule == nullptr) return nullptr;
  if (!PyCapsule_CheckExact(capsule.get()))
    return PyErr_Format(PyExc_TypeError, "__dlpack__ of %.100s returned %.100s, not a capsule",
                        Py_TYPE(object)->tp_name, Py_TYPE(capsule.get())->tp_name);
  return FromCapsule(capsule.get());
}

DLManagedTensorVersioned* TensorOf(PyObject* object) {
  DLManagedTensorVersioned* tensor = nullptr;
  if (const DLPackExchangeAPI* table = TableOf(Py_TYPE(object)); table != nullptr)
    return table->managed_tensor_from_py_object_no_sync(object, &tensor) == 0 ? tensor : nullptr;
  PyObject* const method = _PyType_Lookup(Py_TYPE(object), Names().method);
  if (method == nullptr || !PyType_HasFeature(Py_TYPE(method), Py_TPFLAGS_METHOD_DESCRIPTOR)) return nullptr;
  PyObject* const values[] = {object, Names().version};
  const Ref capsule(PyObject_VectorcallMethod(Names().method, values, 1, Names().keywords));
  if (capsule == nullptr || !PyCapsule_IsValid(capsule.get(), "dltensor_versioned")) return nullptr;
  tensor = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.get(), "dltensor_versioned"));
  return PyCapsule_SetName(capsule.get(), "used_dltensor_versioned") == 0 ? tensor : nullptr;
}

PyObject* ExchangeTensor(PyTypeObject* type, DLManagedTensorVersioned* tensor) {
  const DLPackExchangeAPI* table = TableOf(type);
  void* made = nullptr;
  if (table == nullptr || table->managed_tensor_to_py_object_no_sync == nullptr)
    return PyErr_Format(PyExc_TypeError, "%.100s has no exchange table", type->tp_name);
  if (table->managed_tensor_to_py_object_no_sync(tensor, &made) == 0) return static_cast<PyObject*>(made);
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_BufferError, "the exchange API failed without an error");
  return nullptr;
}

PyObject* Capsuled(PyObject*, PyObject* take) {
  static PyMethodDef method = {"take", CapsuleTo, METH_O,
                               "take($self, view, /)\n--\n\nWhat a function makes of an unversioned capsule."};
  return PyCFunction_New(&method, take);
}

PyObject* TakeCapsule(PyObject* take, const View& view) {
  const Ref capsule(ViewLegacyCapsule(view));
  return capsule == nullptr ? nullptr : PyObject_CallOneArg(take, capsule.get());
}

PyObject* TakerOfCapsules(PyObject* capsuled) {
  if (!PyCFunction_CheckExact(capsuled) || PyCFunction_GET_FUNCTION(capsuled) != &CapsuleTo) return nullptr;
  return PyCFunction_GET_SELF(capsuled);
}

PyTypeObject* ExchangedType(PyObject* exchanger) {
  if (!PyCFunction_CheckExact(exchanger) || PyCFunction_GET_FUNCTION(exchanger) != &ExchangeTo) return nullptr;
  return reinterpret_cast<PyTypeObject*>(PyCFunction_GET_SELF(exchanger));
}

PyObject* Exchanger(PyObject*, PyObject* type) {
  static PyMethodDef method = {"exchange", ExchangeTo, METH_O,
                               "exchange($self, view, /)\n--\n\nAn object of a certain type, over host memory."};
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "exchanger takes a type");
  return PyCFunction_New(&method, type);
}

// A consumer keeps the tensor in a capsule with a name of its own: it is the base of NumPy's arrays.
PyObject* Exported(PyObject*, PyObject* capsule) {
  if (!PyCapsule_CheckExact(capsule)) Py_RETURN_NONE;
  return Guarded(static_cast<PyObject*>(nullptr), [capsule]() -> PyObject* {
    std::optional<View> found;
    for (const char* name : {"numpy_dltensor_versioned", "dltensor_versioned"}) {
      if (!PyCapsule_IsValid(capsule, name)) continue;
      found = ExportedFrom(*static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, name)));
    }
    for (const char* name : {"numpy_dltensor", "dltensor"}) {
      if (!PyCapsule_IsValid(capsule, name)) continue;
      found = ExportedFrom(*static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name)));
    }
    if (!found.has_value()) Py_RETURN_NONE;
    return NewView(*std::move(found));
  });
}

namespace {

// Reads the Views of a sequence; false with a Python error.
bool ViewsOf(PyObject* objects, std::vector<View>& views) {
  const Ref sequence(PySequence_Fast(objects, "copy_to_gpus() takes two sequences of Views"));
  if (sequence == nullptr) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    const View* view = ViewOf(PySequence_Fast_GET_ITEM(sequence.get(), i));
    if (view == nullptr) return false;
    views.push_back(*view);
  }
  return true;
}

}  // namespace

PyObject* CopyToGpusOf(PyObject*, PyObject* arguments) {
  return Guarded(static_cast<PyObject*>(nullptr), [arguments]() -> PyObject* {
    PyObject* from = nullptr;
    PyObject* to = nullptr;
    std::vector<View> sources;
    std::vector<View> destinations;
    if (!PyArg_ParseTuple(arguments, "OO:copy_to_gpus", &from, &to)) return nullptr;
    if (!ViewsOf(from, sources) || !ViewsOf(to, destinations)) return nullptr;
    const Status copied = WithoutGil([&] { return CopyToGpus(sources, destinations); });
    if (!copied.ok()) return RaiseBuffer(copied);
    Py_RETURN_NONE;
  });
}

PyObject* CopyToHeapOf(PyObject*, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [object]() -> PyObject* {
    const View* view = ViewOf(object);
    if (view == nullptr) return nullptr;
    auto copy = WithoutGil([view] { return CopyToHeap(*view); });
    return copy.ok() ? NewView(*std::move(copy)) : RaiseBuffer(copy.status());
  });
}

}  // namespace arraybridge::python
