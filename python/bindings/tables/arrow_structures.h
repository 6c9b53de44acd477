// SPDX-License-Identifier: Apache-2.0
// Arrow's C structures, and the capsules in which Python passes them on.
// Source: https://arrow.apache.org/docs/format/CDataInterface.html, CStreamInterface.html, CDeviceDataInterface.html
// and CDataInterface/PyCapsuleInterface.html.
#pragma once

#include <cstdint>
#include <memory>

#include "python/bindings/python_owner.h"

namespace arraybridge::python {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowDeviceArray {
  ArrowArray array;
  int64_t device_id;
  int32_t device_type;
  void* sync_event;
  int64_t reserved[3];
};

struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
  int (*get_next)(ArrowArrayStream*, ArrowArray*);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

// A consumer that takes a structure sets its `release` to null.
template <class Structure>
void Release(Structure& structure) {
  if (structure.release != nullptr) structure.release(&structure);
}
inline void Release(ArrowDeviceArray& device_array) { Release(device_array.array); }

template <class Structure>
struct Releasing {
  void operator()(Structure* held) const {
    Release(*held);
    delete held;
  }
};
template <class Structure>
using Held = std::unique_ptr<Structure, Releasing<Structure>>;

// The capsule owns the structure, and the parts that its consumer has not taken. A pending exception survives.
template <class Structure>
void DestroyCapsule(PyObject* capsule) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  Held<Structure> held(static_cast<Structure*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))));
  held.reset();  // before the exception is restored
  PyErr_Restore(type, value, traceback);
}

template <class Structure>
Ref CapsuleOf(Held<Structure> held, const char* name) {
  Ref capsule(PyCapsule_New(held.get(), name, DestroyCapsule<Structure>));
  if (capsule != nullptr) static_cast<void>(held.release());
  return capsule;
}

}  // namespace arraybridge::python
