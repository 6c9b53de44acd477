// SPDX-License-Identifier: Apache-2.0
// The part of NumPy's C API for allocators of arrays (NEP 49), without NumPy's headers: the handler of an array's
// memory, and the context variable that has the handler of new arrays.
// https://numpy.org/doc/stable/reference/c-api/data_memory.html
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace arraybridge::python {

// NumPy's PyDataMemAllocator, version 1.
struct NumpyAllocator {
  void* context;
  void* (*malloc)(void* context, size_t bytes);
  void* (*calloc)(void* context, size_t count, size_t bytes);
  void* (*realloc)(void* context, void* data, size_t bytes);
  void (*free)(void* context, void* data, size_t bytes);
};

// NumPy's PyDataMem_Handler.
struct NumpyHandler {
  char name[127];
  uint8_t version;
  NumpyAllocator allocator;
};

constexpr char kNumpyHandlerCapsule[] = "mem_handler";

// REQUIRES: the GIL, for each.
class NumpyMemory {
 public:
  // Imports NumPy. Throws if it is not installed.
  static const NumpyMemory& Get();

  // Of this context; None of Python: NumPy's own. Returns the one before, as a new reference; nullptr with an error.
  PyObject* SetHandler(PyObject* capsule) const { return set_handler_(capsule); }
  // NumPy's own handler, which all contexts without another one use.
  NumpyHandler& Default() const { return *default_; }

 private:
  NumpyMemory();

  PyObject* (*set_handler_)(PyObject*);
  NumpyHandler* default_;
};

}  // namespace arraybridge::python
