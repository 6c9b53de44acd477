// The method Broker.get. A call with a name, and perhaps a framework, is answered here if its share is found without a
// call to the daemon; it then enters no Python function but the note of its plan. Every other call is passed to the
// Python function that the method wraps.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <optional>

#include "python/bindings/shortcut.h"

namespace arraybridge::python {

namespace {

struct GetMethodObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject* function;    // null only while the collector clears it
  PyObject* attributes;  // those of the function, which functools.update_wrapper copies
};

// Set once, under the import lock; they live as long as the process.
PyObject* g_fast = nullptr;        // the name of an attribute of a Broker, a tuple of Fields
PyObject* g_known_core = nullptr;  // the name of an attribute of its Connection
PyObject* g_numpy = nullptr;       // the default of `framework`

enum Field : uint8_t { kConnection, kForms, kNote, kGranted, kFields };

GetMethodObject* Self(PyObject* self) { return reinterpret_cast<GetMethodObject*>(self); }

// The result, or null with an error. Nothing, possibly with an error: the function is called.
std::optional<PyObject*> Got(PyObject* broker, PyObject* name, PyObject* framework) {
  const Ref fast(PyObject_GetAttr(broker, g_fast));
  if (fast == nullptr || !PyTuple_CheckExact(fast.get()) || PyTuple_GET_SIZE(fast.get()) != kFields)
    return std::nullopt;
  const auto field = [&fast](Field which) { return PyTuple_GET_ITEM(fast.get(), which); };
  const Ref form = Entry(field(kForms), framework, 2);
  if (form == nullptr) return std::nullopt;
  const Ref core(PyObject_GetAttr(field(kConnection), g_known_core));
  if (core == nullptr || core.get() == Py_None) return std::nullopt;
  const Held held =
      AcquireAs(core.get(), name, PyTuple_GET_ITEM(form.get(), 0) == Py_True, PyTuple_GET_ITEM(form.get(), 1));
  if (held.result == nullptr) return std::nullopt;
  if (held.plan == nullptr) return PyObject_CallFunctionObjArgs(field(kGranted), held.result.get(), framework, nullptr);
  const Ref noted(PyObject_CallOneArg(field(kNote), held.plan.get()));
  return noted == nullptr ? nullptr : Py_NewRef(held.result.get());
}

PyObject* Call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (names == nullptr && (count == 2 || count == 3)) {
    PyObject* const framework = count == 3 ? arguments[2] : g_numpy;
    std::optional<PyObject*> got;
    const bool threw = Guarded(true, [&] {
      if (PyUnicode_CheckExact(framework)) got = Got(arguments[0], arguments[1], framework);
      return false;
    });
    if (!threw && got.has_value()) return *got;
    if (!MayGoOn()) return nullptr;
  }
  return PyObject_Vectorcall(Self(self)->function, arguments, flags, names);
}

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject* function = nullptr;
  if (keywords != nullptr || !PyArg_ParseTuple(arguments, "O:GetMethod", &function)) return nullptr;
  PyObject* const self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  Self(self)->call = Call;
  Self(self)->function = Py_NewRef(function);
  return self;
}

PyObject* Bind(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(Self(self)->function);
  Py_VISIT(Self(self)->attributes);
  return 0;
}

int Clear(PyObject* self) {
  Py_CLEAR(Self(self)->attributes);
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(Self(self)->function);
  Py_CLEAR(Self(self)->attributes);
  type->tp_free(self);
  Py_DECREF(type);
}

// As a function is: by its qualified name.
PyObject* Reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyObject* Repr(PyObject* self) {
  const Ref name(PyObject_GetAttrString(self, "__qualname__"));
  if (name != nullptr) return PyUnicode_FromFormat("<function %U at %p>", name.get(), self);
  PyErr_Clear();
  return PyUnicode_FromFormat("<%s object at %p>", Py_TYPE(self)->tp_name, self);
}

PyMethodDef g_methods[] = {
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef g_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GetMethodObject, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(GetMethodObject, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef g_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

template <class Function>
void* Slot(Function function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

int AddGetMethodType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, Slot(New)},
      {Py_tp_call, Slot(PyVectorcall_Call)},
      {Py_tp_descr_get, Slot(Bind)},
      {Py_tp_getattro, Slot(PyObject_GenericGetAttr)},
      {Py_tp_setattro, Slot(PyObject_GenericSetAttr)},
      {Py_tp_traverse, Slot(Traverse)},
      {Py_tp_clear, Slot(Clear)},
      {Py_tp_dealloc, Slot(Dealloc)},
      {Py_tp_repr, Slot(Repr)},
      {Py_tp_methods, g_methods},
      {Py_tp_members, g_members},
      {Py_tp_getset, g_properties},
      {0, nullptr},
  };
  PyType_Spec spec{"arraybridge._core.GetMethod", sizeof(GetMethodObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                   slots};
  g_fast = PyUnicode_InternFromString("_fast");
  g_known_core = PyUnicode_InternFromString("known_core");
  g_numpy = PyUnicode_InternFromString("numpy");
  if (g_fast == nullptr || g_known_core == nullptr || g_numpy == nullptr) return -1;
  const Ref type(PyType_FromSpec(&spec));
  return type == nullptr ? -1 : PyModule_AddObjectRef(module, "GetMethod", type.get());
}

}  // namespace arraybridge::python
