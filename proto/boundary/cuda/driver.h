// SPDX-License-Identifier: Apache-2.0
// The Driver is the CUDA driver library, loaded at run time: one function pointer for each call, named without its
// prefix: `driver.MemCreate(&handle, size, &properties, 0)`. It is a value, because the library is never unloaded. The
// pointers are as thread-safe as the driver's calls; most calls need a current context (driver_context.h). A forked
// child must not make any call.
#pragma once

#include <string>
#include <string_view>

#include "proto/boundary/cuda/driver_abi.h"
#include "proto/boundary/cuda/driver_symbols.h"
#include "proto/boundary/result.h"

namespace arraybridge::cuda {

// A version in its usual form: 12080 is "12.8".
std::string Dotted(int version);

struct Driver {
  // Loads `path`, or the system's libcuda.so.1 if `path` is empty, resolves every call and initialises the driver.
  // UNAVAILABLE with the reason CUDA_LIBRARY_ABSENT, CUDA_DRIVER_TOO_OLD (below kVersionMin), CUDA_SYMBOL_MISSING, or
  // the name of the error from initialising: CUDA_ERROR_STUB_LIBRARY, _NO_DEVICE, _SYSTEM_DRIVER_MISMATCH, _UNKNOWN.
  static Result<Driver> Load(const std::string& path = {});

  // The oldest driver that has every required call.
  static constexpr int kVersionMin = 11040;

  // The CUDA version that the driver supports: 12080 is 12.8. At least kVersionMin.
  int version = 0;

#define AB_DRIVER_MEMBER(name, version, suffix, need, parameters) CUresult(*name) parameters = nullptr;
  AB_DRIVER_SYMBOLS(AB_DRIVER_MEMBER)
#undef AB_DRIVER_MEMBER

  // Converts the result of the call `symbol` into a Status: the code comes from the table in driver.cc, the reason is
  // the error's name, and the message has symbol, name, number and `detail` (sizes and names; no pointers, no handle
  // bytes). An argument that the driver refuses is our mistake: INTERNAL. CUDA_ERROR_NOT_READY is an answer and not an
  // error; compare for it first.
  template <class... Detail>
  Status Check(CUresult result, std::string_view symbol, const Detail&... detail) const {
    if (result == CUDA_SUCCESS) return Ok();
    return Explain(result, symbol, Concat("", detail...), Code::kInternal);
  }
  // The same for a call whose arguments came from another process: a refused argument is INVALID_ARGUMENT.
  template <class... Detail>
  Status CheckInput(CUresult result, std::string_view symbol, const Detail&... detail) const {
    if (result == CUDA_SUCCESS) return Ok();
    return Explain(result, symbol, Concat("", detail...), Code::kInvalidArgument);
  }

  // "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA_ERROR_<number>" if the driver has no name for it.
  std::string NameOf(CUresult result) const;

 private:
  Status Explain(CUresult result, std::string_view symbol, const std::string& detail, Code refused) const;
};

// True for errors after which the process (for 710, its context) can no longer use the device: every later call fails
// with the same error. Check turns such an error into a Status with the code ABORTED.
bool IsSticky(CUresult result);
bool IsSticky(const Status& status);

// True for errors of calls that are refused while a graph is being captured. Such an error says nothing about earlier
// work, and the call may succeed later.
bool IsCapture(CUresult result);

}  // namespace arraybridge::cuda
