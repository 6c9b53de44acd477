// How foreign objects that speak DLPack become Views. Nothing is copied; nothing a producer says is trusted.
#include <dlpack/dlpack.h>

#include "python/bindings/exchange.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

// The name decides the dialect. The capsule is renamed last: until then everything is still its own.
template <class Tensor>
PyObject* Consume(PyObject* capsule, const char* live, const char* used) {
  auto* tensor = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, live));
  PyObject* view = Adopt(tensor);
  if (view != nullptr) PyCapsule_SetName(capsule, used);
  return view;
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
  PyObject* view = Adopt(tensor);
  if (view == nullptr && tensor->deleter != nullptr) {  // refused, so it is ours to delete
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    tensor->deleter(tensor);
    PyErr_Restore(type, value, traceback);
  }
  return view;
}

// Made once: the call is hot.
struct CallNames {
  PyObject* method = PyUnicode_InternFromString("__dlpack__");
  PyObject* keywords = Py_BuildValue("(N)", PyUnicode_InternFromString("max_version"));
  PyObject* version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
};
const CallNames& Names() {
  static const CallNames names;
  return names;
}

// Older producers know no max_version and say so by TypeError, TensorFlow by RuntimeError.
PyObject* CallDlpack(PyObject* method) {
  PyObject* const values[] = {Names().version};
  PyObject* capsule = PyObject_Vectorcall(method, values, 0, Names().keywords);
  if (capsule != nullptr) return capsule;
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)) return nullptr;
  PyErr_Clear();
  return PyObject_CallNoArgs(method);
}

}  // namespace

PyObject* Wrap(PyObject*, PyObject* object) {
  if (IsView(object)) return Py_NewRef(object);
  if (PyCapsule_CheckExact(object)) return FromCapsule(object);
  if (const DLPackExchangeAPI* table = TableOf(Py_TYPE(object)); table != nullptr) return FromTable(*table, object);
  const Ref method(PyObject_GetAttr(object, Names().method));
  if (method == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    return PyErr_Format(PyExc_TypeError, "%.100s does not speak DLPack", Py_TYPE(object)->tp_name);
  }
  const Ref capsule(CallDlpack(method.get()));
  if (capsule == nullptr) return nullptr;
  if (!PyCapsule_CheckExact(capsule.get()))
    return PyErr_Format(PyExc_TypeError, "__dlpack__ of %.100s returned %.100s, not a capsule",
                        Py_TYPE(object)->tp_name, Py_TYPE(capsule.get())->tp_name);
  return FromCapsule(capsule.get());
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
