// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/capture.h"

#include <set>
#include <string>
#include <utility>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {
namespace {

// Calls that a capture forbids to threads that are not in the relaxed mode.
bool IsUnsafe(const std::string& symbol) {
  static const std::set<std::string> unsafe = {"cuMemAlloc_v2",
                                               "cuMemFree_v2",
                                               "cuMemCreate",
                                               "cuMemRelease",
                                               "cuMemMap",
                                               "cuMemUnmap",
                                               "cuMemSetAccess",
                                               "cuMemAddressFree",
                                               "cuMemAddressReserve",
                                               "cuIpcOpenMemHandle_v2",
                                               "cuIpcCloseMemHandle",
                                               "cuIpcGetMemHandle",
                                               "cuEventQuery",
                                               "cuEventSynchronize",
                                               "cuStreamSynchronize",
                                               "cuIpcOpenEventHandle",
                                               "cuCtxSynchronize",
                                               "cuMemHostAlloc",
                                               "cuMemFreeHost",
                                               "cuMemHostRegister_v2",
                                               "cuMemHostUnregister",
                                               "cuEventDestroy_v2",
                                               "cuMemcpy",
                                               "cuMemcpyHtoD_v2",
                                               "cuMemcpyDtoH_v2",
                                               "cuMemImportFromShareableHandle"};
  return unsafe.count(symbol) != 0;
}

}  // namespace

CUstreamCaptureMode& ThreadCaptureMode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool Capture::Forbids(const char* symbol) {
  if (!open || ThreadCaptureMode() == CU_STREAM_CAPTURE_MODE_RELAXED || mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return false;
  }
  const bool ours = maker == std::this_thread::get_id();
  const bool concerned =
      ours || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && ThreadCaptureMode() == CU_STREAM_CAPTURE_MODE_GLOBAL);
  if (!concerned || !IsUnsafe(symbol)) return false;
  invalidated = true;
  return true;
}

bool Capture::ForbidsContext(const void* asked) {
  if (!open || asked != context) return false;
  invalidated = true;
  return true;
}

CUresult Capture::RefusalToUse(const Stream& used) {
  if (!open || !blocking || !used.legacy || used.context != context) return CUDA_SUCCESS;
  invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult Capture::RefusalToWaitFor(const Stream& awaited) {
  if (!awaited.capturing) return RefusalToUse(awaited);
  invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Capture::RefusalToWaitFor(const Event& awaited) {
  if (!awaited.captured) return CUDA_SUCCESS;
  invalidated = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult Capture::RefusalToDependOn(const Event& awaited, const Stream& waiting) {
  if (!waiting.capturing || awaited.captured || awaited.Latest() == 0) return CUDA_SUCCESS;
  invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

SIM_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(ThreadCaptureMode(), *mode);
  return CUDA_SUCCESS;
}

SIM_API cuCtxRecordEvent(CUcontext context, CUevent event) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (call.process.config.version < 12050) return CUDA_ERROR_NOT_SUPPORTED;
  Context* known = call.process.devices.Known(context);
  const auto found = call.process.FindEvent(__func__, event);
  if (known == nullptr || !known->alive()) return CUDA_ERROR_INVALID_CONTEXT;
  if (found == nullptr || found->imported || found->context != known) return CUDA_ERROR_INVALID_HANDLE;
  if (call.process.capture.ForbidsContext(known)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto streams = call.process.StreamsOf(*known);
  std::erase_if(streams, [](const auto& stream) { return stream->idle(); });
  found->captured = false;
  Record(found, streams);
  return CUDA_SUCCESS;
}

SIM_API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->legacy || call.process.capture.open || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  found->capturing = true;
  call.process.capture = {true, false, mode, std::this_thread::get_id(), found->context, found->blocking};
  return CUDA_SUCCESS;
}

SIM_API cuStreamEndCapture(CUstream stream, void** graph) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (found == nullptr || !found->capturing) return CUDA_ERROR_INVALID_HANDLE;
  if (graph != nullptr) *graph = nullptr;
  found->capturing = false;
  call.process.capture.open = false;
  return call.process.capture.invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

SIM_API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Capture& open = call.process.capture;
  // The only query of another capture that does not invalidate it.
  if (found->legacy && open.open && open.blocking && open.context == found->context) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const bool invalidated = found->capturing && open.invalidated;
  *status = invalidated        ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
            : found->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                               : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
