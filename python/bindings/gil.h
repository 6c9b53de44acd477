// The GIL, given away and taken back. Python before 3.14 answers a thread that wants it while the interpreter ends with
// pthread_exit: the stack is unwound without the GIL, through frames that hold Python's objects, and through
// destructors, which is an abort. Such a thread stays where it is instead, as newer Pythons let it: the process is
// about to go.
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

// Runs `take`, which waits for the GIL: it returns with the GIL, or never.
template <class Take>
auto TakeOrPark(Take take) {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    Park();
  }
}

// The GIL is away while this lives; only Return brings it back.
class GilAway {
 public:
  // Who holds the GIL of an interpreter that ends is the one who ends it: that thread may have it back.
  GilAway() : ends_it_(InterpreterEnding()), thread_(PyEval_SaveThread()) {}
  GilAway(const GilAway&) = delete;
  GilAway& operator=(const GilAway&) = delete;

  void Return() const {
    if (!ends_it_ && InterpreterEnding()) Park();
    TakeOrPark([this] { PyEval_RestoreThread(thread_); });
  }

 private:
  const bool ends_it_;
  PyThreadState* const thread_;
};

// What `call` returns, or throws, when it has run without the GIL.
template <class Call>
auto WithoutGil(Call call) {
  std::optional<decltype(call())> answer;
  std::exception_ptr thrown;
  const GilAway away;
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
