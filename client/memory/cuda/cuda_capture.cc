// SPDX-License-Identifier: Apache-2.0
#include "client/memory/cuda/cuda_capture.h"

namespace arraybridge {

Result<bool> IsCaptured(const cuda::Driver& driver, uintptr_t stream) {
  cuda::CUstreamCaptureStatus status{};
  const cuda::CUresult answer = driver.StreamIsCapturing(StreamOf(stream), &status);
  // The query of the default stream reports a capture that it would have to wait for.
  if (cuda::IsCapture(answer)) return true;
  AB_RETURN_IF_ERROR(driver.Check(answer, "cuStreamIsCapturing"));
  return status != cuda::CU_STREAM_CAPTURE_STATUS_NONE;
}

Status CheckNotCaptured(const cuda::Driver& driver, std::span<const uintptr_t> streams) {
  for (const uintptr_t stream : streams) {
    AB_ASSIGN_OR_RETURN(const auto captured, IsCaptured(driver, stream));
    if (!captured) continue;
    return FailedPrecondition(
               "the stream that produces the array's bytes cannot be used while a CUDA graph is being captured: work "
               "queued now would be recorded, not executed; put the array before or after the capture, or use a stream "
               "outside of the capture")
        .Because("STREAM_CAPTURING");
  }
  return Ok();
}

Status CheckProducersNotCaptured(std::span<const View> arrays) {
  for (const View& array : arrays) {
    if (array.device.type != kDeviceCuda || !array.stream.has_value()) continue;
    AB_ASSIGN_OR_RETURN(const auto place, CudaDevices::At(array.device));
    AB_RETURN_IF_ERROR(CheckNotCaptured(place.driver, std::span(&*array.stream, 1)));
  }
  return Ok();
}

}  // namespace arraybridge
