// SPDX-License-Identifier: Apache-2.0
// Owners of Python objects for Views, and what raw C types need: a guard for callbacks that call C++, and their slots.
// A View may be destroyed on any thread, without the GIL, and after the interpreter has ended: the owners here take the
// GIL themselves, or leak the object.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>
#include <new>

#include "proto/boundary/result.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

// Runs with the GIL. Does nothing while the interpreter ends, because its objects end with the process.
template <class Drop>
void WithInterpreter(Drop drop) {
  if (InterpreterEnding()) return;
  const PyGILState_STATE state = TakeOrPark([] { return PyGILState_Ensure(); });
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  drop();
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
}

// Holds a strong reference.
inline std::shared_ptr<const void> OwnerOf(PyObject* object) {
  Py_INCREF(object);
  return std::shared_ptr<PyObject>(object, [](PyObject* held) { WithInterpreter([held] { Py_DECREF(held); }); });
}

// Holds foreign memory, whose deleter may take the GIL itself, and so is not called while the interpreter ends.
inline std::shared_ptr<const void> OwnerOf(std::shared_ptr<const void> memory) {
  auto* const held = new std::shared_ptr<const void>(std::move(memory));
  return std::shared_ptr<const void>(held->get(), [held](const void*) { WithInterpreter([held] { delete held; }); });
}

struct Decref {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Ref = std::unique_ptr<PyObject, Decref>;  // REQUIRES: the GIL when it is destroyed

// Runs `call` where no C++ exception may escape: it becomes a Python exception, and the result is `failed`. A thread
// that Python ends with pthread_exit cannot be unwound through here.
template <class Call, class Answer>
Answer Guarded(Answer failed, Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (const abi::__forced_unwind&) {
    Park();
  }
  return failed;
}

// A function in a PyType_Slot.
template <class Function>
void* Slot(Function function) {
  return reinterpret_cast<void*>(function);
}

// Raises the class that DLPack and the buffer protocol expect. Returns nullptr.
inline PyObject* RaiseBuffer(const Status& status) {
  PyObject* kind = status.code() == Code::kResourceExhausted ? PyExc_MemoryError : PyExc_BufferError;
  PyErr_SetString(kind, status.message().c_str());
  return nullptr;
}

}  // namespace arraybridge::python
