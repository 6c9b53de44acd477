// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/plan_note.h"

#include <structmember.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "python/bindings/python_owner.h"

namespace arraybridge::python {

namespace {

struct PlanNoteObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject* of_thread;  // a threading.local; its attribute `plan` is the thread's latest plan
  PyObject* log;        // a logging.Logger
  PyObject* levels;     // what its isEnabledFor has answered, by level, until a level changes; null: it is asked
  // The thread that called last, and its plan, which `of_thread` keeps. 0: unknown, or `of_thread` is of greenlets.
  uint64_t thread;
  PyObject* plan;
  bool of_system_thread;
};

// Set once, under the import lock; they live as long as the process.
PyTypeObject* g_type = nullptr;
PyTypeObject* g_count_type = nullptr;
PyObject* g_plan = nullptr;
PyObject* g_is_enabled = nullptr;
PyObject* g_debug_level = nullptr;

PlanNoteObject* Self(PyObject* self) { return reinterpret_cast<PlanNoteObject*>(self); }

// False: isEnabledFor(DEBUG) would be False.
bool MayLog(const PlanNoteObject& self) {
  return self.levels == nullptr || PyDict_GetItemWithError(self.levels, g_debug_level) != Py_False;
}

bool Log(PyObject* log, PyObject* plan) {
  const Ref enabled(PyObject_CallMethodOneArg(log, g_is_enabled, g_debug_level));
  const int on = enabled == nullptr ? -1 : PyObject_IsTrue(enabled.get());
  if (on <= 0) return on == 0;
  const Ref logged(PyObject_CallMethod(log, "debug", "sO", "%s", plan));
  return logged != nullptr;
}

// The fields are set first, because a plan that is dropped may run any code.
bool Note(PlanNoteObject* self, PyObject* plan) {
  const uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
  if (self->thread != thread || self->plan != plan) {
    self->thread = self->of_system_thread ? thread : 0;
    self->plan = plan;
    if (PyObject_SetAttr(self->of_thread, g_plan, plan) < 0) return self->thread = 0, false;
  }
  return !MayLog(*self) || Log(self->log, plan);
}

PyObject* Call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  if (PyVectorcall_NARGS(flags) != 1 || names != nullptr)
    return PyErr_Format(PyExc_TypeError, "a PlanNote takes a plan");
  return Note(Self(self), arguments[0]) ? Py_NewRef(Py_None) : nullptr;
}

// A Logger remembers what isEnabledFor has answered. Null: it is of another class, which may answer as it likes.
Ref LevelsOf(PyObject* log) {
  const Ref logging(PyImport_ImportModule("logging"));
  const Ref logger(logging == nullptr ? nullptr : PyObject_GetAttrString(logging.get(), "Logger"));
  const bool is_plain = reinterpret_cast<PyObject*>(Py_TYPE(log)) == logger.get();
  Ref levels(is_plain ? PyObject_GetAttrString(log, "_cache") : nullptr);
  PyErr_Clear();
  return levels != nullptr && PyDict_CheckExact(levels.get()) ? std::move(levels) : nullptr;
}

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject* of_thread = nullptr;
  PyObject* log = nullptr;
  if (keywords != nullptr) return PyErr_Format(PyExc_TypeError, "PlanNote takes no keyword arguments");
  if (!PyArg_ParseTuple(arguments, "OO:PlanNote", &of_thread, &log)) return nullptr;
  PyObject* const self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  Self(self)->call = Call;
  Self(self)->of_system_thread = std::strcmp(Py_TYPE(of_thread)->tp_name, "_thread._local") == 0;
  Self(self)->of_thread = Py_NewRef(of_thread);
  Self(self)->log = Py_NewRef(log);
  Self(self)->levels = LevelsOf(log).release();
  return self;
}

PyObject* LatestPlan(PyObject* self, void*) {
  PyObject* const plan = PyObject_GetAttr(Self(self)->of_thread, g_plan);
  if (plan != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return plan;
  PyErr_Clear();
  Py_RETURN_NONE;
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(Self(self)->of_thread);
  Py_VISIT(Self(self)->log);
  Py_VISIT(Self(self)->levels);
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(Self(self)->of_thread);
  Py_CLEAR(Self(self)->log);
  Py_CLEAR(Self(self)->levels);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef g_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PlanNoteObject, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef g_attributes[] = {
    {"latest", LatestPlan, nullptr, "the calling thread's latest plan; None: it has none", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

struct PlanCountObject {
  PyObject_HEAD uint64_t value;  // under the GIL
};

PyObject* NewCount(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  if (PyTuple_GET_SIZE(arguments) != 0 || keywords != nullptr)
    return PyErr_Format(PyExc_TypeError, "PlanCount takes no arguments");
  return type->tp_alloc(type, 0);
}

PyObject* Add(PyObject* self, PyObject*) {
  ++reinterpret_cast<PlanCountObject*>(self)->value;
  Py_RETURN_NONE;
}

PyMethodDef g_count_methods[] = {
    {"add", Add, METH_NOARGS, "add($self, /)\n--\n\nCounts one delivery."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef g_count_members[] = {
    {"value", T_ULONGLONG, offsetof(PlanCountObject, value), READONLY, "deliveries"},
    {nullptr, 0, 0, 0, nullptr},
};

int AddCountType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, Slot(NewCount)},
      {Py_tp_methods, g_count_methods},
      {Py_tp_members, g_count_members},
      {0, nullptr},
  };
  PyType_Spec spec{"arraybridge._core.PlanCount", sizeof(PlanCountObject), 0, Py_TPFLAGS_DEFAULT, slots};
  g_count_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (g_count_type == nullptr) return -1;
  return PyModule_AddObjectRef(module, "PlanCount", reinterpret_cast<PyObject*>(g_count_type));
}

}  // namespace

int AddPlanNoteTypes(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, Slot(New)},
      {Py_tp_call, Slot(PyVectorcall_Call)},
      {Py_tp_traverse, Slot(Traverse)},
      {Py_tp_dealloc, Slot(Dealloc)},
      {Py_tp_members, g_members},
      {Py_tp_getset, g_attributes},
      {0, nullptr},
  };
  PyType_Spec spec{"arraybridge._core.PlanNote", sizeof(PlanNoteObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  constexpr long kDebug = 10;  // logging.DEBUG
  g_plan = PyUnicode_InternFromString("plan");
  g_is_enabled = PyUnicode_InternFromString("isEnabledFor");
  g_debug_level = PyLong_FromLong(kDebug);
  if (PyErr_Occurred() != nullptr) return -1;
  g_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (g_type == nullptr || PyModule_AddObjectRef(module, "PlanNote", reinterpret_cast<PyObject*>(g_type)) < 0)
    return -1;
  return AddCountType(module);
}

bool NotePlan(PyObject* note, PyObject* plan) {
  if (Py_TYPE(note) == g_type) return Note(Self(note), plan);
  PyErr_Format(PyExc_TypeError, "expected a PlanNote, not %.100s", Py_TYPE(note)->tp_name);
  return false;
}

bool CountPlan(PyObject* count) {
  if (Py_TYPE(count) == g_count_type) return ++reinterpret_cast<PlanCountObject*>(count)->value, true;
  PyErr_Format(PyExc_TypeError, "expected a PlanCount, not %.100s", Py_TYPE(count)->tp_name);
  return false;
}

}  // namespace arraybridge::python
