#include "client/memory/cuda_capture.h"

namespace arraybridge {

Result<bool> IsCaptured(const cuda::Driver& driver, uintptr_t stream) {
  cuda::CUstreamCaptureStatus status{};
  const cuda::CUresult answer = driver.StreamIsCapturing(reinterpret_cast<cuda::CUstream>(stream), &status);
  // The default stream, of a capture that it would have to wait for.
  if (cuda::IsCapture(answer)) return true;
  AB_RETURN_IF_ERROR(driver.Check(answer, "cuStreamIsCapturing"));
  return status != cuda::CU_STREAM_CAPTURE_STATUS_NONE;
}

Status CheckNotCaptured(const cuda::Driver& driver, std::span<const uintptr_t> streams) {
  for (const uintptr_t stream : streams) {
    const auto captured = IsCaptured(driver, stream);
    if (!captured.ok()) return captured.status();
    if (!*captured) continue;
    return FailedPrecondition(
               "the stream that makes the array's bytes cannot be followed while a CUDA graph is being captured: work "
               "queued now would be recorded, not done; put the array before the capture or after it, or use a stream "
               "that takes no part in it")
        .Because("STREAM_CAPTURING");
  }
  return Ok();
}

Status CheckProducersNotCaptured(std::span<const View> arrays) {
  for (const View& array : arrays) {
    if (array.device.type != kDeviceCuda || !array.stream.has_value()) continue;
    const auto place = CudaDevices::At(array.device);
    if (!place.ok()) return place.status();
    AB_RETURN_IF_ERROR(CheckNotCaptured(place->driver, std::span(&*array.stream, 1)));
  }
  return Ok();
}

}  // namespace arraybridge
