// SPDX-License-Identifier: Apache-2.0
// Reads and makes NumPy's arrays by their own fields: their DLPack makes a capsule and a tensor for each call.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <arraybridge/view.h>

namespace arraybridge::python {

// Reads a compact array of ordinary numbers, of the class ndarray itself, into a new `view`. False for other objects;
// they are read by DLPack. The View has no owner: it must not outlive the caller's reference to the array.
bool ReadNdarray(PyObject* array, View& view);

// A function of the module: the ndarray over a View's memory in the host, read-only if the View is. Does not copy.
PyObject* Ndarray(PyObject* module, PyObject* view);
// The same for a View that has traits.
PyObject* NdarrayOfOrdinary(PyObject* view);

}  // namespace arraybridge::python
