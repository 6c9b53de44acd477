// What a View needs to keep Python's things alive, and to let C++ fail inside a C callback. A View dies on any thread,
// without the GIL, maybe after the interpreter: whoever owns a Python object here takes the GIL itself, or leaks.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>
#include <new>

#include "proto/boundary/result.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

// Runs with the GIL; does nothing when the interpreter is going: its objects die with the process.
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

// Holds a strong reference of its own.
inline std::shared_ptr<const void> OwnerOf(PyObject* object) {
  Py_INCREF(object);
  return std::shared_ptr<PyObject>(object, [](PyObject* held) { WithInterpreter([held] { Py_DECREF(held); }); });
}

struct Decref {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Ref = std::unique_ptr<PyObject, Decref>;  // REQUIRES: the GIL when it dies

// Runs `call` where a C++ exception must not escape: it becomes a Python one and `failed` the answer. A thread that
// ends in Python code, because the interpreter does, cannot be unwound through here.
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

// The class that DLPack and the buffer protocol expect. Returns nullptr.
inline PyObject* RaiseBuffer(const Status& status) {
  PyObject* kind = status.code() == Code::kResourceExhausted ? PyExc_MemoryError : PyExc_BufferError;
  PyErr_SetString(kind, status.message().c_str());
  return nullptr;
}

}  // namespace arraybridge::python
