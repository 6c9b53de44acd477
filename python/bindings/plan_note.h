// arraybridge._core.PlanNote: each thread's latest plan. A raw C type, because every delivery notes its plan.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace arraybridge::python {

// Adds the type to the module, once per process. -1 with a Python error.
int AddPlanNoteType(PyObject* module);

// Calls a PlanNote with a plan. False with a Python error.
bool NotePlan(PyObject* note, PyObject* plan);

}  // namespace arraybridge::python
