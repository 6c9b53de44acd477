// SPDX-License-Identifier: Apache-2.0
// arraybridge._core.View: the client's View as a raw C type, because DLPack is called up to a million times a second
// and a generated binding costs 0.7 µs per call. Immutable, weak-referenceable, not picklable.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <arraybridge/view.h>

namespace arraybridge::python {

struct ViewObject {
  PyObject_HEAD View view;
  PyObject* weak_references;
};

// Adds the type to the module, once per process. -1 with a Python error.
int AddViewType(PyObject* module);

// A new reference; nullptr with a Python error.
PyObject* NewView(View&& view);
bool IsView(PyObject* object);
// nullptr with a TypeError if it is not a View. Borrowed.
const View* ViewOf(PyObject* object);
// The name of its dtype for people, which another process may have chosen.
std::string ShownDtype(const View& view);

// The key of a plan for compact host memory; nothing for other memory, and for dtypes with a name of their own.
std::optional<uint64_t> TraitsOf(const View& view);
// The alignment of an address, as the traits have it.
uint64_t AlignmentOf(const void* data);
// For compact host memory.
uint64_t TraitsOf(DataType type, const void* data, bool read_only, size_t rank);

// A tuple of ints; nullptr with a Python error.
PyObject* TupleOf(const std::vector<int64_t>& values);

// view_dlpack.cc: the methods.
int InternDlpackNames();
PyObject* ViewDlpack(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
// False with a BufferError: DLPack lacks the dtype, and a consumer would read numbers of another meaning.
bool CheckDlpackSays(const View& view);
// The same, without an error.
bool DlpackSays(const View& view);
// True for read-only host memory that must be exported in a form in which writes do not reach it.
bool IsGuarded(const View& view);
// View::copy_on_write, without the GIL, because it may wait for the reclaimer and the reclaimer for the interpreter.
// Nothing with a Python error. REQUIRES: View::copy_on_write is not null.
std::optional<View> OwnMapping(const View& view);
// A writable View of the same values for one consumer: copy-on-write, or a reported copy. Nothing with a Python error.
// REQUIRES: IsGuarded.
std::optional<View> Protected(PyObject* self);
// A reported copy at an address that suits all consumers. Nothing with a Python error.
std::optional<View> AlignedCopy(PyObject* self);
// Tests a consumer (NumPy's from_dlpack): True if it respects READ_ONLY, and is identified by the names of the keyword
// arguments of its calls. From then on it gets guarded memory as it is.
PyObject* HeedsReadOnly(PyObject* module, PyObject* take);
// An unversioned capsule for a consumer with immutable arrays; orders no stream. nullptr with a Python error.
PyObject* ViewLegacyCapsule(const View& view);
PyObject* ViewDlpackDevice(PyObject* self, PyObject* unused);
// Waits for bytes of another process. False with a BufferError: they will never be complete.
bool WaitForFence(const View& view);

// view_buffer.cc: PEP 3118 and the array interface.
int ViewGetBuffer(PyObject* self, Py_buffer* buffer, int flags);
void ViewReleaseBuffer(PyObject* self, Py_buffer* buffer);
PyObject* ViewArrayInterface(PyObject* self, void* unused);
PyObject* ViewCudaArrayInterface(PyObject* self, void* unused);
PyObject* ViewArray(PyObject* self, PyObject* arguments, PyObject* keywords);

// view_arrow.cc: the methods.
PyObject* ViewArrowArray(PyObject* self, PyObject* arguments, PyObject* keywords);
PyObject* ViewArrowDeviceArray(PyObject* self, PyObject* arguments, PyObject* keywords);

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
// The function of a Capsuled object; nullptr for any other object. Borrowed.
PyObject* TakerOfCapsules(PyObject* capsuled);
// Passes a View to `take` as an unversioned capsule, for a consumer with immutable arrays, and returns the result.
PyObject* TakeCapsule(PyObject* take, const View& view);
// The type of an Exchanger object; nullptr for any other object.
PyTypeObject* ExchangedType(PyObject* exchanger);
// Makes an object of that type over a tensor of host memory. nullptr with a Python error; then it is unknown whether
// the type has taken ownership of the tensor.
PyObject* ExchangeTensor(PyTypeObject* type, DLManagedTensorVersioned* tensor);
// The tensor of an object with the exchange table, or with `__dlpack__` as a method of its class; the caller owns it.
// nullptr, possibly without an error: Wrap reports more.
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
PyObject* ReceiveAs(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace arraybridge::python
