// SPDX-License-Identifier: Apache-2.0
// What the files of the simulated CUDA runtime share: each of its calls is one or more calls of the simulated driver,
// with the thread's device current. It is compiled against the headers of the runtime that it replaces, of 12 or 13.
#pragma once

#include <cstring>

#include <cuda_runtime_api.h>

#include "tests/simulated_cuda/calls.h"

#define RUNTIME extern "C" __attribute__((visibility("default")))

namespace arraybridge::simulated_runtime {

namespace driver = arraybridge::simulated;
using driver::CUresult;

// The error that this thread's next cudaGetLastError returns.
cudaError_t& LastError();
// Results and errors have the same numbers, with few exceptions.
cudaError_t Answer(CUresult result);
CUresult Initialised();
// Finds the primary context of a device, which the process retains.
CUresult Primary(int device, driver::CUcontext* found);
// Makes the current device's primary context current, as every runtime call does.
CUresult Ready();
int CurrentDevice();

// The result of a driver call that is made with a current context.
template <class Function, class... Arguments>
cudaError_t Call(Function function, Arguments... arguments) {
  const CUresult ready = Ready();
  return Answer(ready == driver::CUDA_SUCCESS ? function(arguments...) : ready);
}

inline driver::CUdeviceptr Address(const void* pointer) { return reinterpret_cast<driver::CUdeviceptr>(pointer); }
inline driver::CUstream Stream(cudaStream_t stream) { return reinterpret_cast<driver::CUstream>(stream); }
inline driver::CUevent Event(cudaEvent_t event) { return reinterpret_cast<driver::CUevent>(event); }
inline driver::CUstream* Out(cudaStream_t* stream) { return reinterpret_cast<driver::CUstream*>(stream); }
inline driver::CUevent* Out(cudaEvent_t* event) { return reinterpret_cast<driver::CUevent*>(event); }
inline driver::CUdeviceptr* Out(void** pointer) { return reinterpret_cast<driver::CUdeviceptr*>(pointer); }

template <class To, class From>
To Bytes(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace arraybridge::simulated_runtime
