// SPDX-License-Identifier: Apache-2.0
// A FastMethod is a method of a Python class whose frequent calls are answered here: Broker.get of a share that is
// found without a call to the daemon, and Channel.send and Channel.receive of ordinary arrays. Every other call is
// passed to the Python function that the method wraps.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

#include "python/bindings/handoff.h"
#include "python/bindings/shortcut.h"

namespace arraybridge::python {

namespace {

// The result, or null with an error. Nothing, possibly with an error: the function is called.
using Answered = std::optional<PyObject*>;
using Way = Answered (*)(PyObject* const* arguments, Py_ssize_t count, PyObject* names);

struct FastMethodObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject* function;
  PyObject* attributes;  // those of the function, which functools.update_wrapper copies
  Way way;
};

// Set once, under the import lock; they live as long as the process.
PyObject* g_numpy = nullptr;    // the default of `framework`
PyObject* g_timeout = nullptr;  // the one argument that is understood by its name

FastMethodObject* Self(PyObject* self) { return reinterpret_cast<FastMethodObject*>(self); }

// None without names, the value of `timeout` if it is the only name. Nothing: there are others, or it needs a check.
std::optional<PyObject*> TimeoutAmong(PyObject* const* values, PyObject* names) {
  if (names == nullptr) return Py_None;
  if (PyTuple_GET_SIZE(names) != 1 || PyTuple_GET_ITEM(names, 0) != g_timeout) return std::nullopt;
  PyObject* const timeout = values[0];
  const bool is_number = PyFloat_CheckExact(timeout) || PyLong_CheckExact(timeout);
  if (timeout == Py_None || (is_number && PyFloat_AsDouble(timeout) >= 0)) return timeout;
  return std::nullopt;
}

Answered Get(PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (names != nullptr || count < 2 || count > 3) return std::nullopt;
  PyObject* const framework = count == 3 ? arguments[2] : g_numpy;
  if (!PyUnicode_CheckExact(framework)) return std::nullopt;
  return GetHeld(arguments[0], arguments[1], framework);
}

Answered Send(PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (count != 2) return std::nullopt;
  const auto timeout = TimeoutAmong(arguments + count, names);
  return timeout ? SendOrdinary(arguments[0], arguments[1], *timeout) : std::nullopt;
}

Answered Receive(PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (count < 1 || count > 2) return std::nullopt;
  const auto timeout = TimeoutAmong(arguments + count, names);
  PyObject* const framework = count == 2 ? arguments[1] : g_numpy;
  if (!timeout || !PyUnicode_CheckExact(framework)) return std::nullopt;
  return ReceiveOrdinary(arguments[0], framework, *timeout);
}

struct Named {
  const char* name;
  Way way;
};
constexpr Named kWays[] = {{"get", Get}, {"send", Send}, {"receive", Receive}};

PyObject* Call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  const Answered answered =
      Guarded(Answered(nullptr), [=] { return Self(self)->way(arguments, PyVectorcall_NARGS(flags), names); });
  if (answered.has_value()) return *answered;
  if (!MayGoOn()) return nullptr;
  return PyObject_Vectorcall(Self(self)->function, arguments, flags, names);
}

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject* function = nullptr;
  const char* name = nullptr;
  if (keywords != nullptr) return PyErr_Format(PyExc_TypeError, "FastMethod takes no keyword arguments");
  if (!PyArg_ParseTuple(arguments, "Os:FastMethod", &function, &name)) return nullptr;
  const auto* const found = std::ranges::find(kWays, std::string_view(name), &Named::name);
  if (found == std::end(kWays)) return PyErr_Format(PyExc_ValueError, "no method '%s' has a fast way", name);
  PyObject* const self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  Self(self)->call = Call;
  Self(self)->function = Py_NewRef(function);
  Self(self)->way = found->way;
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
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FastMethodObject, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(FastMethodObject, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef g_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

int AddFastMethodType(PyObject* module) {
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
  // The interpreter caches lookups of methods of immutable types.
  PyType_Spec spec{"arraybridge._core.FastMethod", sizeof(FastMethodObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                       Py_TPFLAGS_IMMUTABLETYPE,
                   slots};
  g_numpy = PyUnicode_InternFromString("numpy");
  g_timeout = PyUnicode_InternFromString("timeout");
  if (g_numpy == nullptr || g_timeout == nullptr || InternHandoffNames() < 0) return -1;
  const Ref type(PyType_FromSpec(&spec));
  return type == nullptr ? -1 : PyModule_AddObjectRef(module, "FastMethod", type.get());
}

}  // namespace arraybridge::python
