// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.PlanNote, each thread's latest plan, and PlanCount, the number of deliveries by one plan. Raw C
// types, because every delivery notes and counts its plan.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace arraybridge::python {

// Adds the types to the module, once per process. -1 with a Python error.
int AddPlanNoteTypes(PyObject* module);

// Calls a PlanNote with a plan. False with a Python error.
bool NotePlan(PyObject* note, PyObject* plan);
// Adds one to a PlanCount. False with a Python error.
bool CountPlan(PyObject* count);

}  // namespace arraybridge::python
