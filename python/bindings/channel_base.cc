// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/channel_base.h"

#include <new>

#include "python/bindings/python_owner.h"

namespace arraybridge::python {

namespace {

PyTypeObject* g_type = nullptr;  // set once, under the import lock; lives as long as the process

ChannelBase& Self(PyObject* self) { return *reinterpret_cast<ChannelBase*>(self); }

// Calls `use` with each field that is a reference.
template <class Use>
int ForEach(PyObject* self, Use use) {
  ChannelBase& base = Self(self);
  for (PyObject** const field : {&base.broker, &base.ends, &base.unclaimed, &base.makers, &base.freeze,
                                 &base.latest.framework, &base.latest.form, &base.latest.decided}) {
    if (const int stop = use(field); stop != 0) return stop;
  }
  return 0;
}

// A subclass's `__init__` gets the arguments. object's own function prepares the attributes for the interpreter's
// caches.
PyObject* New(PyTypeObject* type, PyObject*, PyObject*) {
  const Ref none(PyTuple_New(0));
  PyObject* const self = none == nullptr ? nullptr : PyBaseObject_Type.tp_new(type, none.get(), nullptr);
  if (self != nullptr) new (&Self(self).latest.share) std::shared_ptr<const Share>();
  return self;
}

PyObject* Prepare(PyObject* self, PyObject* arguments) {
  PyObject *broker = nullptr, *ends = nullptr, *unclaimed = nullptr, *makers = nullptr, *freeze = nullptr;
  int waits = 0;
  if (!PyArg_ParseTuple(arguments, "O!O!OO!Op:_prepare", &PyTuple_Type, &broker, &PyDict_Type, &ends, &unclaimed,
                        &PyDict_Type, &makers, &freeze, &waits))
    return nullptr;
  ChannelBase& base = Self(self);
  Py_XSETREF(base.broker, Py_NewRef(broker));
  Py_XSETREF(base.ends, Py_NewRef(ends));
  Py_XSETREF(base.unclaimed, Py_NewRef(unclaimed));
  Py_XSETREF(base.makers, Py_NewRef(makers));
  Py_XSETREF(base.freeze, Py_NewRef(freeze));
  base.waits = waits != 0;
  Py_RETURN_NONE;
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return ForEach(self, [=](PyObject** field) { return *field == nullptr ? 0 : visit(*field, arg); });
}

int Clear(PyObject* self) {
  return ForEach(self, [](PyObject** field) {
    Py_CLEAR(*field);
    return 0;
  });
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  static_cast<void>(Clear(self));
  Self(self).latest.share.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef g_methods[] = {
    {"_prepare", Prepare, METH_VARARGS,
     "_prepare($self, broker, ends, unclaimed, makers, freeze, waits, /)\n--\n\nSets what the fast methods need."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int AddChannelBaseType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, Slot(New)},         {Py_tp_traverse, Slot(Traverse)}, {Py_tp_clear, Slot(Clear)},
      {Py_tp_dealloc, Slot(Dealloc)}, {Py_tp_methods, g_methods},       {0, nullptr},
  };
  PyType_Spec spec{"arraybridge._core.ChannelBase", sizeof(ChannelBase), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  g_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return g_type == nullptr ? -1 : PyModule_AddObjectRef(module, "ChannelBase", reinterpret_cast<PyObject*>(g_type));
}

ChannelBase* ChannelBaseOf(PyObject* channel) {
  if (!PyObject_TypeCheck(channel, g_type) || Self(channel).broker == nullptr) return nullptr;
  return &Self(channel);
}

}  // namespace arraybridge::python
