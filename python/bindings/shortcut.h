// The tables of the fast paths, as the Python modules that own them fill them.
#pragma once

#include "python/bindings/python_owner.h"

namespace arraybridge::python {

// A tuple of `size` that a table has under this key, as a new reference, because another thread may clear the table.
// nullptr, possibly without an error.
Ref Entry(PyObject* table, PyObject* key, Py_ssize_t size);

// True: the full path is taken, and reports the error, which is cleared. KeyboardInterrupt and SystemExit are passed
// on: false.
bool MayGoOn();

// A share that was found without a call. No result, possibly with an error: the full path is taken. No plan: the result
// is (ShareInfo, [View, ...]).
struct Held {
  Ref result;
  Ref plan;
};
// `plans`: from View.traits of the one array of a share to (plan, show, count).
Held AcquireAs(PyObject* core, PyObject* name, bool map_private, PyObject* plans);

// Adds `GetMethod` to the module. -1 with a Python error.
int AddGetMethodType(PyObject* module);

}  // namespace arraybridge::python
