// arraybridge._core.View: the client's View as a raw C type, because DLPack is called a million times a second and a
// generated binding costs 0.7 µs a call. Immutable, weak-referenceable, not picklable.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <arraybridge/view.h>

namespace arraybridge::python {

struct ViewObject {
  PyObject_HEAD View view;
  PyObject* weak_references;
};

// Adds the type to the module; once a process. -1 with a Python error.
int AddViewType(PyObject* module);

// A new reference; nullptr with a Python error.
PyObject* NewView(View view);
bool IsView(PyObject* object);
// nullptr with a TypeError if it is no View. Borrowed.
const View* ViewOf(PyObject* object);

// A tuple of ints; nullptr with a Python error.
PyObject* TupleOf(const std::vector<int64_t>& values);

// view_dlpack.cc: the methods.
int InternDlpackNames();
PyObject* ViewDlpack(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
// False with a BufferError: DLPack has no word for the dtype, and a consumer would see numbers of another meaning.
bool CheckDlpackSays(const View& view);
// The same, without an error.
bool DlpackSays(const View& view);
// An unversioned capsule; no stream is ordered. nullptr with a Python error.
PyObject* ViewLegacyCapsule(const View& view);
PyObject* ViewDlpackDevice(PyObject* self, PyObject* unused);
// Waits for bytes that another process makes. False with a BufferError: they will never be there.
bool WaitForFence(const View& view);

// view_buffer.cc: PEP 3118 and the array interface.
int ViewGetBuffer(PyObject* self, Py_buffer* buffer, int flags);
void ViewReleaseBuffer(PyObject* self, Py_buffer* buffer);
PyObject* ViewArrayInterface(PyObject* self, void* unused);
PyObject* ViewCudaArrayInterface(PyObject* self, void* unused);
PyObject* ViewArray(PyObject* self, PyObject* arguments, PyObject* keywords);

// exchange.cc: DLPack's C table, static.
struct ExchangeNames {
  static constexpr const char* kCapsule = "dlpack_exchange_api";
};
const void* ExchangeTable();

// wrap.cc: module functions.
PyObject* Wrap(PyObject* module, PyObject* object);
PyObject* Exchange(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* WrapBuffer(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* WrapArrayInterface(PyObject* module, PyObject* arguments);
PyObject* WrapCudaArrayInterface(PyObject* module, PyObject* arguments);
PyObject* Gpus(PyObject* module, PyObject* unused);
PyObject* CopyToHeapOf(PyObject* module, PyObject* object);

}  // namespace arraybridge::python
