// SPDX-License-Identifier: Apache-2.0
// The consumer's side of DLPack's C exchange table: makes a View of a foreign tensor.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

#include <cstdint>

namespace arraybridge::python {

// Returns a new View that owns the tensor. nullptr with a BufferError: the caller still owns the tensor. `stream`: for
// memory on a GPU, the stream of its producer, in View::stream's numbers. `producers`: the producer also queues later
// changes on that stream.
PyObject* Adopt(DLManagedTensorVersioned* tensor, uintptr_t stream, bool producers = false);
PyObject* Adopt(DLManagedTensor* tensor, uintptr_t stream);

// A deleter may run Python code, so a pending error is saved and restored. A tensor without a deleter is legal.
inline void DeleteTensor(DLManagedTensorVersioned* tensor) {
  if (tensor->deleter == nullptr) return;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  tensor->deleter(tensor);
  PyErr_Restore(type, value, traceback);
}

// Two stream values that are not pointers.
inline constexpr uintptr_t kLegacyStream = 1;
inline constexpr uintptr_t kPerThreadStream = 2;

// The stream of a View whose producer names `stream`. The per-thread stream is another one in each thread, and a View's
// reader may be in any; the legacy stream is ordered after those of all threads.
inline uintptr_t StreamForAnyThread(uintptr_t stream) { return stream == kPerThreadStream ? kLegacyStream : stream; }

// True for memory of a CUDA GPU, including the driver's managed memory.
bool OnGpu(const DLTensor& tensor);

// The table of an object's type if its major version is supported; nullptr, without an error, if it has none.
const DLPackExchangeAPI* TableOf(PyTypeObject* type);
int InternExchangeNames();

}  // namespace arraybridge::python
