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

// All that a plan needs to know of compact host memory, as one number to look a plan up by; nothing of other memory,
// and of dtypes that have a name of their own.
std::optional<uint64_t> TraitsOf(const View& view);
// Of compact host memory.
uint64_t TraitsOf(DataType type, const void* data, bool read_only, size_t rank);

// A tuple of ints; nullptr with a Python error.
PyObject* TupleOf(const std::vector<int64_t>& values);

// view_dlpack.cc: the methods.
int InternDlpackNames();
PyObject* ViewDlpack(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
// False with a BufferError: DLPack has no word for the dtype, and a consumer would see numbers of another meaning.
bool CheckDlpackSays(const View& view);
// The same, without an error.
bool DlpackSays(const View& view);
// Read-only host memory that must not leave in a form in which a write reaches it.
bool IsGuarded(const View& view);
// View::copy_on_write, which may wait for the reaper, and that for the interpreter. Nothing with a Python error.
// REQUIRES: it is not null.
std::optional<View> OwnMapping(const View& view);
// A writable View of the same values for one consumer: copy-on-write, or a reported copy. Nothing with a Python error.
// REQUIRES: IsGuarded.
std::optional<View> Protected(PyObject* self);
// A reported copy at an address that suits every consumer. Nothing with a Python error.
std::optional<View> AlignedCopy(PyObject* self);
// Tries a consumer (NumPy's from_dlpack): True if it heeds READ_ONLY, and tells itself apart from others by the names
// it calls with. Guarded memory goes to it as it is from then on.
PyObject* HeedsReadOnly(PyObject* module, PyObject* take);
// An unversioned capsule for a consumer whose arrays are immutable; no stream is ordered. nullptr with a Python error.
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
PyObject* Exchanger(PyObject* module, PyObject* type);
PyObject* Capsuled(PyObject* module, PyObject* take);
PyObject* Exported(PyObject* module, PyObject* capsule);
// What Capsuled was given; nullptr of anything else. Borrowed.
PyObject* TakerOfCapsules(PyObject* capsuled);
// What `take` makes of a View as an unversioned capsule, for a consumer whose arrays are immutable.
PyObject* TakeCapsule(PyObject* take, const View& view);
// The type of what Exchanger made; nullptr of anything else.
PyTypeObject* ExchangedType(PyObject* exchanger);
// An object of that type over a tensor of host memory. nullptr with a Python error; whether it has taken the tensor
// over then, nobody knows.
PyObject* ExchangeTensor(PyTypeObject* type, DLManagedTensorVersioned* tensor);
// What an object exports that has the exchange table, or `__dlpack__` as a method of its class; the caller's. nullptr,
// maybe without an error: Wrap says more.
DLManagedTensorVersioned* TensorOf(PyObject* object);
PyObject* WrapBuffer(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* WrapConstant(PyObject* module, PyObject* object);
PyObject* WrapArrayInterface(PyObject* module, PyObject* arguments);
PyObject* WrapCudaArrayInterface(PyObject* module, PyObject* arguments);
PyObject* Gpus(PyObject* module, PyObject* unused);
PyObject* GpuReaches(PyObject* module, PyObject* numbers);
PyObject* CopyToHeapOf(PyObject* module, PyObject* object);
PyObject* CopyToGpusOf(PyObject* module, PyObject* arguments);

// shortcut.cc
PyObject* Shortcut(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* TryAcquireAs(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace arraybridge::python
