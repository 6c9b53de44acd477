// SPDX-License-Identifier: Apache-2.0
// View.__dlpack__, according to the array API of 2023.12 and DLPack 1.3: exports the dialect that the consumer
// requests. Consumers retry only on TypeError, so a TypeError never reports a property of the data.
#include <dlpack/dlpack.h>

#include <arraybridge/device.h>

#include "python/bindings/exchange.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

enum Name { kStream, kMaxVersion, kDlDevice, kCopy, kNames };
PyObject* g_names[kNames];  // interned, so that comparing pointers almost always suffices

template <class Tensor>
constexpr const char* kLiveName = nullptr;
template <>
constexpr const char* kLiveName<DLManagedTensor> = "dltensor";
template <>
constexpr const char* kLiveName<DLManagedTensorVersioned> = "dltensor_versioned";

// A consumed capsule is called `used_...` and does not own its tensor. A pending exception survives the deleter.
template <class Tensor>
void DestroyCapsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kLiveName<Tensor>)) return;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  auto* tensor = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, kLiveName<Tensor>));
  tensor->deleter(tensor);
  PyErr_Restore(type, value, traceback);
}

template <class Tensor>
PyObject* Capsule(Tensor* tensor) {
  PyObject* capsule = PyCapsule_New(tensor, kLiveName<Tensor>, DestroyCapsule<Tensor>);
  if (capsule == nullptr) tensor->deleter(tensor);
  return capsule;
}

struct Wish {
  bool versioned = false;
  std::optional<bool> copy;
  bool to_host = false;  // from a GPU to the host
  uintptr_t stream = 0;  // of the consumer; 0: no order is requested
};

int IndexOf(PyObject* name) {
  for (int i = 0; i < kNames; ++i)
    if (name == g_names[i]) return i;
  for (int i = 0; i < kNames; ++i)
    if (PyUnicode_Compare(name, g_names[i]) == 0) return i;
  return -1;
}

// Reads a 2-tuple of ints; false with a TypeError. Saturates.
bool Pair(PyObject* value, const char* name, long (&out)[2]) {
  if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2 || !PyLong_Check(PyTuple_GET_ITEM(value, 0)) ||
      !PyLong_Check(PyTuple_GET_ITEM(value, 1))) {
    PyErr_Format(PyExc_TypeError, "%s must be a tuple of two ints or None", name);
    return false;
  }
  for (int i = 0; i < 2; ++i) {
    int overflow = 0;
    out[i] = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(value, i), &overflow);
    if (overflow != 0) out[i] = overflow > 0 ? LONG_MAX : LONG_MIN;
  }
  return true;
}

// -1: the consumer orders the streams itself. 0 is ambiguous and refused.
bool ReadStream(const View& view, PyObject* stream, Wish& wish) {
  if (!PyLong_Check(stream)) {
    PyErr_SetString(PyExc_TypeError, "stream must be an int or None");
    return false;
  }
  if (view.device.type == kDeviceCpu) {
    PyErr_Format(PyExc_ValueError, "stream must be None for host memory, not %R", stream);
    return false;
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(stream, &overflow);
  if (overflow != 0 || number == 0 || number < -1) {
    PyErr_Format(PyExc_ValueError, "stream must be -1, 1, 2 or the address of a CUDA stream, not %R", stream);
    return false;
  }
  wish.stream = number > 0 ? static_cast<uintptr_t>(number) : 0;
  return true;
}

bool ReadDevice(const View& view, PyObject* value, Wish& wish) {
  long device[2];
  if (!Pair(value, "dl_device", device)) return false;
  if (device[0] == view.device.type && device[1] == view.device.id) return true;
  wish.to_host = view.device.type == kDeviceCuda && device[0] == kDeviceCpu && device[1] == 0;
  if (wish.to_host) return true;
  PyErr_Format(PyExc_BufferError, "memory of device (%d, %d) cannot be exported to device (%ld, %ld)",
               static_cast<int>(view.device.type), static_cast<int>(view.device.id), device[0], device[1]);
  return false;
}

// Reads one keyword argument that is not None; false with a Python error.
bool Read(const View& view, int name, PyObject* value, Wish& wish) {
  long version[2];
  switch (name) {
    case kStream:
      return ReadStream(view, value, wish);
    case kMaxVersion:
      if (!Pair(value, "max_version", version)) return false;
      wish.versioned = version[0] >= 1;
      return true;
    case kDlDevice:
      return ReadDevice(view, value, wish);
    default:
      break;
  }
  if (!PyBool_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "copy must be a bool or None");
    return false;
  }
  wish.copy = value == Py_True;
  return true;
}

// Checks that the arguments do not contradict each other or the memory; false with a Python error.
bool CheckWishes(const View& view, const Wish& wish) {
  if (view.device.type == kDeviceCpu) return true;
  const char* why = nullptr;
  if (wish.to_host && wish.copy == false) why = "memory of a GPU comes to the host by a copy only";
  if (why != nullptr) PyErr_SetString(PyExc_BufferError, why);
  return why == nullptr;
}

bool ReadAll(const View& view, PyObject* const* values, PyObject* names, Wish& wish) {
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const int name = IndexOf(PyTuple_GET_ITEM(names, i));
    if (name < 0) {
      PyErr_Format(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument %R", PyTuple_GET_ITEM(names, i));
      return false;
    }
    if (values[i] != Py_None && !Read(view, name, values[i], wish)) return false;
  }
  return true;
}

PyObject* Export(const View& view, bool versioned, bool is_copied = false) {
  if (versioned) return Capsule(ExportVersioned(view, is_copied));
  const auto tensor = ExportLegacy(view);
  if (!tensor.ok()) return RaiseBuffer(tensor.status());
  return Capsule(*tensor);
}

// Orders the consumer's stream after the producer's.
bool Order(const View& view, const Wish& wish) {
  if (wish.stream == 0) return true;
  const Status ordered = WithoutGil([&] { return OrderAfterProducer(view, wish.stream); });
  if (!ordered.ok()) RaiseBuffer(ordered);
  return ordered.ok();
}

// Calls Python to count and report the copy, or to refuse it. `copy`: None or False. False with a Python error.
bool ReportCopy(PyObject* self, PyObject* copy, const char* code = "read_only") {
  const Ref module(PyImport_ImportModule("arraybridge.exports"));
  if (module == nullptr) return false;
  const Ref reported(PyObject_CallMethod(module.get(), "report_copy", "OOs", self, copy, code));
  return reported != nullptr;
}

std::optional<View> TakeOrRaise(Result<View> view) {
  if (view.ok()) return *std::move(view);
  RaiseBuffer(view.status());
  return std::nullopt;
}

std::optional<View> HeapCopy(const View& view) {
  return TakeOrRaise(WithoutGil([&view] { return CopyToHeap(view); }));
}

// Copies on the consumer's stream, which needs no wait.
PyObject* ExportGpuCopy(const View& view, const Wish& wish) {
  const auto copy = TakeOrRaise(WithoutGil([&] { return CopyOnGpu(view, wish.stream); }));
  return copy.has_value() ? Export(*copy, wish.versioned, true) : nullptr;
}

PyObject* ExportCopy(const View& view, bool versioned) {
  const auto copy = HeapCopy(view);
  return copy.has_value() ? Export(*copy, versioned, true) : nullptr;
}

// The keyword names of a consumer that is known to respect READ_ONLY: one object, which only that consumer passes.
// Borrowed from a reference that is never dropped; set under the GIL.
PyObject* g_heeding_names = nullptr;
// Set while HeedsReadOnly tests a consumer: receives the keyword names of its call, as a new reference.
thread_local PyObject** t_tried_names = nullptr;

// The keyword names with which `take` calls for the View; nullptr, possibly with an error, if it makes no such call or
// makes a writable array of read-only memory.
Ref NamesOf(PyObject* take, PyObject* view) {
  PyObject* names = nullptr;
  t_tried_names = &names;
  const Ref made(PyObject_CallOneArg(take, view));
  t_tried_names = nullptr;
  Ref found(names);
  Py_buffer buffer;
  if (made == nullptr || PyObject_GetBuffer(made.get(), &buffer, PyBUF_FULL_RO) != 0) return nullptr;
  const bool read_only = buffer.readonly != 0;
  PyBuffer_Release(&buffer);
  if (!read_only) return nullptr;
  return found;
}

// A capsule of read-only memory that writes through it do not reach.
PyObject* ExportGuarded(PyObject* self, const View& view, const Wish& wish, PyObject* names) {
  if (view.copy_on_write != nullptr) {
    const auto own = OwnMapping(view);
    return own.has_value() ? Export(*own, wish.versioned) : nullptr;
  }
  const bool heeded = wish.versioned && names != nullptr && names == g_heeding_names;
  if (heeded || view.legacy_may_alias_read_only) return Export(view, wish.versioned);
  if (!ReportCopy(self, wish.copy.has_value() ? Py_False : Py_None)) return nullptr;
  return view.device.type == kDeviceCpu ? ExportCopy(view, wish.versioned) : ExportGpuCopy(view, wish);
}

}  // namespace

bool DlpackSays(const View& view) { return view.dtype.empty() || IsNameOf(view.dtype, view.type); }

bool CheckDlpackSays(const View& view) {
  if (DlpackSays(view)) return true;
  PyErr_Format(PyExc_BufferError, "DLPack has no dtype '%.100s'", ShownDtype(view).c_str());
  return false;
}

bool WaitForFence(const View& view) {
  if (!view.fence) return true;
  View others = view;
  others.stream.reset();
  const Status waited = WithoutGil([&others] { return WaitForProducer(others); });
  if (!waited.ok()) RaiseBuffer(waited);
  return waited.ok();
}

int InternDlpackNames() {
  const char* const names[] = {"stream", "max_version", "dl_device", "copy"};
  for (int i = 0; i < kNames; ++i) {
    g_names[i] = PyUnicode_InternFromString(names[i]);
    if (g_names[i] == nullptr) return -1;
  }
  return 0;
}

PyObject* ViewDlpack(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (count != 0) {
    PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keyword arguments only");
    return nullptr;
  }
  return Guarded<>(static_cast<PyObject*>(nullptr), [&]() -> PyObject* {
    const View& view = reinterpret_cast<ViewObject*>(self)->view;
    Wish wish;
    if (view.device.type != kDeviceCpu) wish.stream = kLegacyStream;
    if (!ReadAll(view, arguments, names, wish) || !CheckDlpackSays(view) || !CheckWishes(view, wish)) return nullptr;
    if (t_tried_names != nullptr) Py_XSETREF(*t_tried_names, Py_XNewRef(names));
    const bool on_host = view.device.type == kDeviceCpu;
    if (wish.to_host || (on_host && wish.copy == true)) return ExportCopy(view, wish.versioned);
    if (wish.copy == true) return ExportGpuCopy(view, wish);
    // A GPU has no copy-on-write: there only the flag protects, and a consumer without the flag gets a copy.
    const bool drops_flag = !wish.versioned && !view.legacy_may_alias_read_only;
    const bool copied = !on_host && view.guarded && view.read_only && view.data != nullptr && drops_flag;
    if (copied || IsGuarded(view)) return ExportGuarded(self, view, wish, names);
    return Order(view, wish) ? Export(view, wish.versioned) : nullptr;
  });
}

std::optional<View> OwnMapping(const View& view) {
  return TakeOrRaise(WithoutGil([&view] { return view.copy_on_write(view); }));
}

bool IsGuarded(const View& view) {
  return view.guarded && view.read_only && view.data != nullptr && view.device.type == kDeviceCpu;
}

std::optional<View> Protected(PyObject* self) {
  const View& view = *ViewOf(self);
  if (view.copy_on_write != nullptr) return OwnMapping(view);
  return ReportCopy(self, Py_None) ? HeapCopy(view) : std::nullopt;
}

std::optional<View> AlignedCopy(PyObject* self) {
  return ReportCopy(self, Py_None, "alignment") ? HeapCopy(*ViewOf(self)) : std::nullopt;
}

PyObject* HeedsReadOnly(PyObject*, PyObject* take) {
  return Guarded(static_cast<PyObject*>(nullptr), [take]() -> PyObject* {
    static const int64_t trial = 0;
    auto view = Describe(const_cast<int64_t*>(&trial), {0, 64, 1}, {1}, {}, {}, true, nullptr);
    if (!view.ok()) return RaiseBuffer(view.status());
    const Ref object(NewView(*std::move(view)));
    if (object == nullptr) return nullptr;
    const Ref names = NamesOf(take, object.get());
    const Ref again = NamesOf(take, object.get());
    PyErr_Clear();
    if (names == nullptr || names.get() != again.get()) Py_RETURN_FALSE;
    if (g_heeding_names == nullptr) g_heeding_names = Py_NewRef(names.get());
    Py_RETURN_TRUE;
  });
}

PyObject* ViewLegacyCapsule(const View& view) {
  if (!CheckDlpackSays(view)) return nullptr;
  if (IsGuarded(view) && view.copy_on_write != nullptr) {
    const auto own = OwnMapping(view);
    return own.has_value() ? Export(*own, false) : nullptr;
  }
  const auto tensor = ExportLegacy(view, true);
  return tensor.ok() ? Capsule(*tensor) : RaiseBuffer(tensor.status());
}

PyObject* ViewDlpackDevice(PyObject* self, PyObject*) {
  const Device& device = reinterpret_cast<ViewObject*>(self)->view.device;
  return Py_BuildValue("(ii)", static_cast<int>(device.type), static_cast<int>(device.id));
}

}  // namespace arraybridge::python
