// SPDX-License-Identifier: Apache-2.0
// Streams, events and captures.
#include "tests/simulated_cuda/frameworks/cudart/runtime.h"
#include "tests/simulated_cuda/frameworks/cudart/unsupported.h"

using namespace arraybridge::simulated_runtime;

RUNTIME cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return Call(driver::cuStreamCreate, Out(stream), flags);
}
RUNTIME cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
RUNTIME cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
RUNTIME cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Call(driver::cuStreamDestroy_v2, Stream(stream)); }
RUNTIME cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Call(driver::cuStreamSynchronize, Stream(stream));
}
RUNTIME cudaError_t cudaStreamQuery(cudaStream_t stream) { return Call(driver::cuStreamQuery, Stream(stream)); }
RUNTIME cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return Call(driver::cuStreamWaitEvent, Stream(stream), Event(event), flags);
}
RUNTIME cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
RUNTIME cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return Call(driver::cuStreamIsCapturing, Stream(stream), reinterpret_cast<driver::CUstreamCaptureStatus*>(status));
}
RUNTIME cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Call(driver::cuStreamBeginCapture_v2, Stream(stream), static_cast<driver::CUstreamCaptureMode>(mode));
}
RUNTIME cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Call(driver::cuStreamEndCapture, Stream(stream), reinterpret_cast<void**>(graph));
}
RUNTIME cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Call(driver::cuLaunchHostFunc, Stream(stream), function, data);
}
RUNTIME cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                          unsigned int flags) {
  return Call(driver::cuStreamAddCallback, Stream(stream), reinterpret_cast<driver::CUstreamCallback>(function), data,
              flags);
}
RUNTIME cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return Call(driver::cuStreamGetFlags, Stream(stream), flags);
}
RUNTIME cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Call(driver::cuThreadExchangeStreamCaptureMode, reinterpret_cast<driver::CUstreamCaptureMode*>(mode));
}
RUNTIME cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return Call(driver::cuEventCreate, Out(event), flags);
}
RUNTIME cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
RUNTIME cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call(driver::cuEventRecord, Event(event), Stream(stream));
}
RUNTIME cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}
RUNTIME cudaError_t cudaEventQuery(cudaEvent_t event) { return Call(driver::cuEventQuery, Event(event)); }
RUNTIME cudaError_t cudaEventSynchronize(cudaEvent_t event) { return Call(driver::cuEventSynchronize, Event(event)); }
RUNTIME cudaError_t cudaEventDestroy(cudaEvent_t event) { return Call(driver::cuEventDestroy_v2, Event(event)); }
RUNTIME cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return Call(driver::cuEventElapsedTime, milliseconds, Event(begin), Event(end));
}

int arraybridge::simulated_runtime::IsCapturing(void* stream, int* status) {
  return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), reinterpret_cast<cudaStreamCaptureStatus*>(status));
}
