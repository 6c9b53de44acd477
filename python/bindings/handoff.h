// SPDX-License-Identifier: Apache-2.0
// Hand-offs in one call of the extension: put, get, send and receive for arrays that are ordinary, and room for such
// arrays. The Python modules decide which arrays are ordinary, and report the errors of others.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <optional>

namespace arraybridge::python {

// Functions of the module; _core.pyi describes them.
PyObject* PutOrdinary(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* EmptyArray(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

// The fast ways of methods of Broker, whose attribute `_fast` has what they need, and of Channel, a ChannelBase. A
// result, or null with an error; nothing, possibly with an error: nothing was done, and the full path is taken.
// Broker.get of a share that is found without a call.
std::optional<PyObject*> GetHeld(PyObject* broker, PyObject* name, PyObject* framework);
// Channel.send and receive through an open end. `timeout`: None, or a number that is not negative.
std::optional<PyObject*> SendOrdinary(PyObject* channel, PyObject* array, PyObject* timeout);
std::optional<PyObject*> ReceiveOrdinary(PyObject* channel, PyObject* framework, PyObject* timeout);
int InternHandoffNames();

}  // namespace arraybridge::python
