// SPDX-License-Identifier: Apache-2.0
// Releases and takes the GIL. While the interpreter ends, Python before 3.14 answers a thread that requests the GIL
// with pthread_exit: the stack is unwound without the GIL through frames that hold Python objects, and through
// destructors, which aborts the process. Here such a thread blocks instead, as in newer versions of Python, because the
// process is about to end.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <optional>

namespace arraybridge::python {

inline bool InterpreterEnding() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

[[noreturn]] inline void Park() {
  for (;;) ::pause();
}

// Runs `take`, which waits for the GIL. Returns with the GIL, or never.
template <class Take>
auto TakeOrPark(Take take) {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    Park();
  }
}

// Releases the GIL until Return.
class GilAway {
 public:
  // The innermost object of this thread; null while it has the GIL, or if it is not a Python thread.
  static GilAway* OfThisThread() { return of_this_thread_; }

  // The thread that holds the GIL while the interpreter ends is the one that ends it, and may take the GIL again.
  GilAway() : ends_it_(InterpreterEnding()), outer_(of_this_thread_), thread_(PyEval_SaveThread()) {
    of_this_thread_ = this;
  }
  GilAway(const GilAway&) = delete;
  GilAway& operator=(const GilAway&) = delete;

  void Return() {
    Take();
    of_this_thread_ = outer_;
  }
  // Runs signal handlers, which only the main thread can do. True if one of them raised: the error is set.
  bool RunSignalHandlers() {
    Take();
    const bool raised = PyErr_CheckSignals() != 0;
    thread_ = PyEval_SaveThread();
    return raised;
  }

 private:
  void Take() const {
    if (!ends_it_ && InterpreterEnding()) Park();
    TakeOrPark([this] { PyEval_RestoreThread(thread_); });
  }

  static inline thread_local GilAway* of_this_thread_ = nullptr;
  const bool ends_it_;
  GilAway* const outer_;
  PyThreadState* thread_;
};

// True: a signal handler has raised, for instance for Ctrl-C, and this wait is to end. Threads of the client library
// run no signal handlers.
inline bool Interrupted() {
  GilAway* const away = GilAway::OfThisThread();
  return away != nullptr && away->RunSignalHandlers();
}

// Runs `call` without the GIL, and returns its result or throws its exception.
template <class Call>
auto WithoutGil(Call call) {
  std::optional<decltype(call())> answer;
  std::exception_ptr thrown;
  GilAway away;
  try {
    answer.emplace(call());
  } catch (const std::exception&) {
    thrown = std::current_exception();
  }
  away.Return();
  if (thrown) std::rethrow_exception(thrown);
  return *std::move(answer);
}

}  // namespace arraybridge::python
