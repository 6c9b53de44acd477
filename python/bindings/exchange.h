// DLPack's C exchange table, from the consumer's side: how a foreign tensor becomes a View.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

namespace arraybridge::python {

// A new View that owns the tensor. nullptr with a BufferError: the tensor is still the caller's.
PyObject* Adopt(DLManagedTensorVersioned* tensor);
PyObject* Adopt(DLManagedTensor* tensor);

// The table of an object's type whose major version we know; nullptr, without an error, if it has none.
const DLPackExchangeAPI* TableOf(PyTypeObject* type);
int InternExchangeNames();

}  // namespace arraybridge::python
