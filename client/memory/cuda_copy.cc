// Plain asynchronous copies, then a synchronisation of their one stream: the driver stages what is not pinned by
// itself.
#include "client/memory/cuda_copy.h"

#include <chrono>
#include <thread>

#include "client/memory/cuda_devices.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUstream;

namespace {

// How long a capture elsewhere in the process may keep us from asking whether a device is done.
constexpr auto kCaptureStep = std::chrono::milliseconds(1);
constexpr int kCaptureStepsMax = 10000;

CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

// The stream of the view's producer, or one of our own if its bytes are final.
Result<CUstream> StreamOf(const CudaDevices& devices, const View& view, int32_t ordinal) {
  const bool on_device = view.device.type == kDeviceCuda;
  if (on_device && view.stream.has_value()) return reinterpret_cast<CUstream>(*view.stream);
  return devices.OwnStream(ordinal);
}

Status Enqueue(const cuda::Driver& driver, const View& source, void* destination, bool to_device, CUstream stream) {
  const uint64_t bytes = source.nbytes();
  if (source.device.type != kDeviceCuda) {
    return driver.Check(driver.MemcpyHtoDAsync(AddressOf(destination), source.data, bytes, stream), "cuMemcpyHtoDAsync",
                        bytes, " bytes");
  }
  if (!to_device) {
    return driver.Check(driver.MemcpyDtoHAsync(destination, AddressOf(source.data), bytes, stream), "cuMemcpyDtoHAsync",
                        bytes, " bytes");
  }
  return driver.Check(driver.MemcpyDtoDAsync(AddressOf(destination), AddressOf(source.data), bytes, stream),
                      "cuMemcpyDtoDAsync", bytes, " bytes");
}

Status CopyCompactOver(const CudaDevices& devices, const View& source, void* destination, const Device& to,
                       int32_t ordinal) {
  const auto inside = devices.Enter(ordinal);
  if (!inside.ok()) return inside.status();
  const auto stream = StreamOf(devices, source, ordinal);
  if (!stream.ok()) return stream.status();
  const cuda::Driver& driver = devices.driver();
  const Status enqueued = Enqueue(driver, source, destination, to.type == kDeviceCuda, *stream);
  // Even then: what may have been enqueued still uses both ends.
  const Status done = driver.Check(driver.StreamSynchronize(*stream), "cuStreamSynchronize", source.nbytes(), " bytes");
  return enqueued.ok() ? done : enqueued;
}

// From one GPU to another: they may not reach each other's memory.
Status CopyByHost(const View& source, void* destination, const Device& to) {
  const auto staged = CopyToHeap(source);
  if (!staged.ok()) return staged.status();
  return CopyOverDevice(*staged, destination, to);
}

}  // namespace

Status CopyOverDevice(const View& source, void* destination, const Device& to) {
  if (source.nbytes() == 0) return Ok();
  const bool from_device = source.device.type == kDeviceCuda;
  AB_CHECK(from_device || to.type == kDeviceCuda);
  const auto devices = CudaDevices::OfThisProcess();
  if (!devices.ok()) return devices.status();
  const auto at = (*devices)->Find(from_device ? source.device : to);
  if (!at.ok()) return at.status();
  if (from_device && to.type == kDeviceCuda) {
    const auto target = (*devices)->Find(to);
    if (!target.ok()) return target.status();
    if (target->id != at->id) return CopyByHost(source, destination, *target);
  }
  if (source.compact()) return CopyCompactOver(**devices, source, destination, to, at->id);
  if (from_device) {
    return Unimplemented("a strided array on a GPU cannot be copied: make it compact row-major first")
        .Because("DEVICE_STRIDES");
  }
  const auto packed = CopyToHeap(source);
  if (!packed.ok()) return packed.status();
  return CopyCompactOver(**devices, *packed, destination, to, at->id);
}

Status DrainDevice(const Device& device) {
  const auto place = CudaDevices::At(device);
  if (!place.ok()) return place.status();
  const cuda::Driver& driver = place->driver;
  cuda::CUresult result = driver.CtxSynchronize();
  // While somebody captures a graph nobody may ask.
  for (int step = 0; result == cuda::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && step < kCaptureStepsMax; ++step) {
    std::this_thread::sleep_for(kCaptureStep);
    result = driver.CtxSynchronize();
  }
  return driver.Check(result, "cuCtxSynchronize");
}

}  // namespace arraybridge
