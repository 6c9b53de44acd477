// The Driver is the CUDA driver library, loaded at run time: one function pointer per call, named without its prefix,
// `driver.MemCreate(&handle, size, &properties, 0)`. It is a value, for the library is never unloaded. The pointers are
// as thread-safe as the driver's calls; most need a current context (driver_context.h). In a forked child no call may
// be made.
#pragma once

#include <string>
#include <string_view>

#include "proto/boundary/driver_abi.h"
#include "proto/boundary/driver_symbols.h"
#include "proto/boundary/result.h"

namespace arraybridge::cuda {

// A version as people write it: 12080 is "12.8".
std::string Dotted(int version);

struct Driver {
  // Loads `path`, or the system's libcuda.so.1 if it is empty, resolves every call and initialises the driver.
  // UNAVAILABLE with the reason CUDA_LIBRARY_ABSENT, CUDA_DRIVER_TOO_OLD (below kVersionMin), CUDA_SYMBOL_MISSING, or
  // the name of what initialising returned: CUDA_ERROR_STUB_LIBRARY, _NO_DEVICE, _SYSTEM_DRIVER_MISMATCH, _UNKNOWN.
  static Result<Driver> Load(const std::string& path = {});

  // The oldest driver that has every required call.
  static constexpr int kVersionMin = 11040;

  // The CUDA version that the driver supports: 12080 is 12.8. At least kVersionMin.
  int version = 0;

#define AB_DRIVER_MEMBER(name, version, suffix, need, parameters) CUresult(*name) parameters = nullptr;
  AB_DRIVER_SYMBOLS(AB_DRIVER_MEMBER)
#undef AB_DRIVER_MEMBER

  // What `symbol` returned, as a Status: its code by the table in driver.cc, its reason the error's name, its message
  // symbol, name, number and `detail` (sizes and names; no pointers, no handle bytes). An argument that the driver
  // refuses is our mistake: INTERNAL. CUDA_ERROR_NOT_READY is an answer, not an error: compare it before.
  template <class... Detail>
  Status Check(CUresult result, std::string_view symbol, const Detail&... detail) const {
    if (result == CUDA_SUCCESS) return Ok();
    return Explain(result, symbol, Concat("", detail...), Code::kInternal);
  }
  // The same for a call whose arguments came from another process: INVALID_ARGUMENT.
  template <class... Detail>
  Status CheckInput(CUresult result, std::string_view symbol, const Detail&... detail) const {
    if (result == CUDA_SUCCESS) return Ok();
    return Explain(result, symbol, Concat("", detail...), Code::kInvalidArgument);
  }

  // "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA_ERROR_<number>" if the driver knows no name.
  std::string NameOf(CUresult result) const;

 private:
  Status Explain(CUresult result, std::string_view symbol, const std::string& detail, Code refused) const;
};

// True for errors after which the process (or, for 710, its context) can use the device no more: every later call fails
// with the same error. The Status that Check makes of one has the code ABORTED.
bool IsSticky(CUresult result);
bool IsSticky(const Status& status);

// True for what is refused because a graph is being captured somewhere: it says nothing of the work, and may do so
// later.
bool IsCapture(CUresult result);

}  // namespace arraybridge::cuda
