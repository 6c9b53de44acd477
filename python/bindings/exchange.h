// DLPack's C exchange table, from the consumer's side: how a foreign tensor becomes a View.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

#include <cstdint>

namespace arraybridge::python {

// A new View that owns the tensor. nullptr with a BufferError: the tensor is still the caller's. `stream`: of memory on
// a GPU, after what its bytes come, in View::stream's numbers.
// `producers`: what the producer does next is queued on that stream, too.
PyObject* Adopt(DLManagedTensorVersioned* tensor, uintptr_t stream, bool producers = false);
PyObject* Adopt(DLManagedTensor* tensor, uintptr_t stream);

// A deleter may run Python, and shall meet no error of ours. None at all is legal.
inline void DeleteTensor(DLManagedTensorVersioned* tensor) {
  if (tensor->deleter == nullptr) return;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  tensor->deleter(tensor);
  PyErr_Restore(type, value, traceback);
}

// Two streams that are no objects.
inline constexpr uintptr_t kLegacyStream = 1;
inline constexpr uintptr_t kPerThreadStream = 2;

// Memory of a CUDA GPU, also the driver's managed memory.
bool OnGpu(const DLTensor& tensor);

// The table of an object's type whose major version we know; nullptr, without an error, if it has none.
const DLPackExchangeAPI* TableOf(PyTypeObject* type);
int InternExchangeNames();

}  // namespace arraybridge::python
