// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/exchange.h"

#include <arraybridge/device.h>

#include <cstdlib>

#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

PyObject* g_capsule_name = nullptr;
PyObject* g_address_name = nullptr;

// Refuses memory that this library cannot address, before ownership of the tensor is taken.
bool CheckDevice(const DLTensor& tensor) {
  const int type = static_cast<int>(tensor.device.device_type);
  if (type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost || OnGpu(tensor)) return true;
  PyErr_Format(PyExc_BufferError, "memory of DLPack device (%d, %d) is neither the host's nor a CUDA GPU's", type,
               static_cast<int>(tensor.device.device_id));
  return false;
}

// Creates the Python object first: after `import` has succeeded the tensor is owned, and no later step may fail.
template <class Import>
PyObject* FromImport(uintptr_t stream, bool producers, Import import) {
  Ref object(NewView(View()));
  if (object == nullptr) return nullptr;
  Result<View> view = import();
  if (!view.ok()) return RaiseBuffer(view.status());
  view->owner = OwnerOf(std::move(view->owner));
  if (view->device.type != kDeviceCpu) {
    view->stream = StreamForAnyThread(stream);
    view->stream_is_producers = producers;
  }
  reinterpret_cast<ViewObject*>(object.get())->view = *std::move(view);
  return object.release();
}

// Uses no Python API, because it may be called without the GIL.
int Allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
             void (*set_error)(void*, const char*, const char*)) noexcept {
  try {
    if (prototype->device.device_type != kDLCPU) {
      set_error(context, "BufferError", "only host memory can be allocated");
      return -1;
    }
    ArraySpec spec;
    spec.type = {prototype->dtype.code, prototype->dtype.bits, prototype->dtype.lanes};
    if (prototype->ndim > 0) spec.shape.assign(prototype->shape, prototype->shape + prototype->ndim);
    const auto bytes = spec.compact_bytes();
    if (!bytes.ok()) {
      set_error(context, "BufferError", bytes.status().message().c_str());
      return -1;
    }
    const uint64_t rounded = (*bytes / kArrayAlignment + 1) * kArrayAlignment;
    const std::shared_ptr<void> memory(std::aligned_alloc(kArrayAlignment, rounded), std::free);
    if (memory == nullptr) {
      set_error(context, "MemoryError", "no memory for the tensor");
      return -1;
    }
    const auto view = Describe(memory.get(), spec.type, spec.shape, {}, {}, false, memory);
    if (!view.ok()) {
      set_error(context, "BufferError", view.status().message().c_str());
      return -1;
    }
    *out = ExportVersioned(*view);
    return 0;
  } catch (const std::exception& error) {
    set_error(context, "MemoryError", error.what());
    return -1;
  }
}

int FromPyObject(void* object, DLManagedTensorVersioned** out) noexcept {
  return Guarded(-1, [&] {
    const View* view = ViewOf(static_cast<PyObject*>(object));
    if (view == nullptr || !CheckDlpackSays(*view)) return -1;
    // "No sync" means: ordered after the stream of CurrentStream. Not every consumer asks for that stream, so this
    // waits for bytes of another process.
    if (!WaitForFence(*view)) return -1;
    if (const Status ordered = OrderAfterProducer(*view, kLegacyStream); !ordered.ok()) {
      RaiseBuffer(ordered);
      return -1;
    }
    if (!IsGuarded(*view)) return *out = ExportVersioned(*view), 0;
    const auto own = Protected(static_cast<PyObject*>(object));
    if (!own.has_value()) return -1;
    *out = ExportVersioned(*own, view->copy_on_write == nullptr);
    return 0;
  });
}

int ToPyObject(DLManagedTensorVersioned* tensor, void** out) noexcept {
  *out = Adopt(tensor, kLegacyStream);
  return *out == nullptr ? -1 : 0;
}

// Borrowed: shape and strides belong to the View, which is immutable. A borrowed tensor has no flags, so it cannot be
// marked read-only, and no owner for a private mapping.
int Borrow(void* object, DLTensor* out) noexcept {
  const View* view = ViewOf(static_cast<PyObject*>(object));
  if (view == nullptr || !CheckDlpackSays(*view) || !WaitForFence(*view)) return -1;
  if (IsGuarded(*view)) {
    PyErr_SetString(
        PyExc_BufferError,
        "read-only memory is not lent: a borrowed tensor cannot say that it is read-only. Take an owned one, "
        "or asdlpack(x, copy=True)");
    return -1;
  }
  out->data = view->data;
  out->device = {static_cast<DLDeviceType>(view->device.type), view->device.id};
  out->ndim = static_cast<int32_t>(view->shape.size());
  out->dtype = {view->type.code, view->type.bits, view->type.lanes};
  out->shape = const_cast<int64_t*>(view->shape.data());
  out->strides = const_cast<int64_t*>(view->strides.data());
  out->byte_offset = 0;
  return 0;
}

int CurrentStream(DLDeviceType, int32_t, void** out) noexcept {
  *out = nullptr;  // host memory has no stream; on a GPU it is the legacy default stream
  return 0;
}

const DLPackExchangeAPI g_table = {
    {{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, nullptr}, Allocate, FromPyObject, ToPyObject, Borrow, CurrentStream,
};

// Follows the chain from newer tables to older ones.
const DLPackExchangeAPI* Understood(const DLPackExchangeAPIHeader* header) {
  while (header != nullptr && header->version.major != DLPACK_MAJOR_VERSION) header = header->prev_api;
  return reinterpret_cast<const DLPackExchangeAPI*>(header);
}

}  // namespace

const void* ExchangeTable() { return &g_table; }

bool OnGpu(const DLTensor& tensor) {
  return tensor.device.device_type == kDLCUDA || tensor.device.device_type == kDLCUDAManaged;
}

PyObject* Adopt(DLManagedTensorVersioned* tensor, uintptr_t stream, bool producers) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    // In a tensor of another major version only the header may be read; ImportVersioned refuses it.
    if (tensor->version.major == DLPACK_MAJOR_VERSION && !CheckDevice(tensor->dl_tensor)) return nullptr;
    return FromImport(stream, producers, [tensor] { return ImportVersioned(tensor); });
  });
}

PyObject* Adopt(DLManagedTensor* tensor, uintptr_t stream) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (!CheckDevice(tensor->dl_tensor)) return nullptr;
    return FromImport(stream, false, [tensor] { return ImportLegacy(tensor); });
  });
}

const DLPackExchangeAPI* TableOf(PyTypeObject* type) {
  // Reads only the type, through the interpreter's method cache: attributes of foreign objects may raise or run code.
  PyObject* found = _PyType_Lookup(type, g_capsule_name);
  if (found != nullptr && PyCapsule_IsValid(found, ExchangeNames::kCapsule))
    return Understood(static_cast<DLPackExchangeAPIHeader*>(PyCapsule_GetPointer(found, ExchangeNames::kCapsule)));
  found = _PyType_Lookup(type, g_address_name);
  if (found == nullptr || !PyLong_Check(found)) return nullptr;
  void* address = PyLong_AsVoidPtr(found);
  if (address == nullptr) PyErr_Clear();
  return Understood(static_cast<DLPackExchangeAPIHeader*>(address));
}

int InternExchangeNames() {
  g_capsule_name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  g_address_name = PyUnicode_InternFromString("__c_dlpack_exchange_api__");
  return g_capsule_name == nullptr || g_address_name == nullptr ? -1 : 0;
}

}  // namespace arraybridge::python
