// Hand-offs in one call of the extension: put, send and receive for arrays that are ordinary, and room for such arrays.
// The Python modules decide which arrays are ordinary, and report the errors of others.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace arraybridge::python {

// Functions of the module; _core.pyi describes them.
PyObject* PutOrdinary(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* SendOrdinary(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* RoomFor(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace arraybridge::python
