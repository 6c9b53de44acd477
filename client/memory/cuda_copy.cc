// Asynchronous copies, then a synchronisation of their one stream, or none where a fence follows.
#include "client/memory/cuda_copy.h"

#include "client/fence_event.h"
#include "client/layout.h"
#include "client/memory/cuda_capture.h"
#include "client/memory/cuda_devices.h"
#include "client/memory/cuda_staging.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUstream;

namespace {

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
  // By address: the ends may lie on two GPUs.
  return driver.Check(driver.MemcpyAsync(AddressOf(destination), AddressOf(source.data), bytes, stream),
                      "cuMemcpyAsync", bytes, " bytes");
}

// Larger ones by pinned chunks, if some are free; else the driver stages what is not pinned by itself.
Status CopyNow(const cuda::Driver& driver, const View& source, void* destination, bool to_device, CUstream stream) {
  const uint64_t bytes = source.nbytes();
  const bool from_device = source.device.type == kDeviceCuda;
  if (from_device != to_device && bytes >= kStagedBytesMin) {
    const auto staged = to_device ? CopyStagedToDevice(driver, static_cast<const std::byte*>(source.data),
                                                       AddressOf(destination), bytes, stream)
                                  : CopyStagedToHost(driver, AddressOf(source.data),
                                                     static_cast<std::byte*>(destination), bytes, stream);
    if (!staged.ok() || *staged) return staged.status();
  }
  const Status enqueued = Enqueue(driver, source, destination, to_device, stream);
  // Even then: what may have been enqueued still uses both ends.
  const Status done = driver.Check(driver.StreamSynchronize(stream), "cuStreamSynchronize", bytes, " bytes");
  return enqueued.ok() ? done : enqueued;
}

Status CopyCompactOver(const CudaDevices& devices, const View& source, void* destination, const Device& to,
                       int32_t ordinal) {
  const auto inside = devices.Enter(ordinal);
  if (!inside.ok()) return inside.status();
  const auto stream = StreamOf(devices, source, ordinal);
  if (!stream.ok()) return stream.status();
  const auto number = reinterpret_cast<uintptr_t>(*stream);
  AB_RETURN_IF_ERROR(CheckNotCaptured(devices.driver(), std::span(&number, 1)));
  if (source.fence) AB_RETURN_IF_ERROR(source.fence->OrderBefore(number));
  Status copied = CopyNow(devices.driver(), source, destination, to.type == kDeviceCuda, *stream);
  if (copied.reason() != "CUDA_ERROR_INVALID_HANDLE" || !source.fence) return copied;
  // What the copy was to come after, maybe: it knows its own end by name.
  const Status lost = source.fence->Wait();
  return lost.ok() ? copied : lost;
}

// From one GPU to another that does not reach its memory.
Status CopyByHost(const View& source, void* destination, const Device& to) {
  const auto staged = CopyToHeap(source);
  if (!staged.ok()) return staged.status();
  return CopyOverDevice(*staged, destination, to);
}

// What a strided view spans, in this process's host memory, where strides cost nothing: the same view there.
Result<View> SpanOnHost(const View& source) {
  const auto extent = layout::ExtentOf(source.shape, source.strides);
  if (!extent.ok()) return extent.status();
  const int64_t item = int64_t{source.type.bits} * source.type.lanes / 8;  // whole bytes: Describe lets in no others
  View span = source;
  span.data = static_cast<std::byte*>(source.data) + extent->lowest * item;
  span.shape = {extent->highest - extent->lowest + 1};
  span.strides = {1};
  auto copied = CopyToHeap(span);
  if (!copied.ok()) return copied;
  View on_host = source;
  on_host.device = {};
  on_host.stream.reset();
  on_host.fence.reset();
  on_host.data = static_cast<std::byte*>(copied->data) - extent->lowest * item;
  on_host.owner = copied->owner;
  return on_host;
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
    if (target->id != at->id && !(*devices)->Reaches(at->id, target->id))
      return CopyByHost(source, destination, *target);
  }
  if (source.compact()) return CopyCompactOver(**devices, source, destination, to, at->id);
  if (from_device) {
    const auto span = SpanOnHost(source);
    if (!span.ok()) return span.status();
    if (to.type == kDeviceCuda) return CopyOverDevice(*span, destination, to);
    return CopyCompact(*span, destination), Ok();
  }
  const auto packed = CopyToHeap(source);
  if (!packed.ok()) return packed.status();
  return CopyCompactOver(**devices, *packed, destination, to, at->id);
}

Result<bool> QueueCopy(const View& source, void* destination, const Device& to) {
  if (source.nbytes() == 0) return false;
  const bool follows = source.device.type == kDeviceCuda && source.stream.has_value() && source.stream_is_producers;
  const auto devices = CudaDevices::OfThisProcess();
  if (!devices.ok()) return devices.status();
  const auto from = follows ? (*devices)->Find(source.device) : (*devices)->Find(to);
  if (!from.ok()) return from.status();
  const auto target = (*devices)->Find(to);
  // Not from another GPU: the fence is recorded on the one where the bytes come to lie.
  if (!follows || from->id != target->id || !source.compact()) {
    AB_RETURN_IF_ERROR(CopyOverDevice(source, destination, to));
    return false;
  }
  const auto inside = (*devices)->Enter(from->id);
  if (!inside.ok()) return inside.status();
  AB_RETURN_IF_ERROR(CheckNotCaptured((*devices)->driver(), std::span(&*source.stream, 1)));
  if (source.fence) AB_RETURN_IF_ERROR(source.fence->OrderBefore(*source.stream));
  AB_RETURN_IF_ERROR(
      Enqueue((*devices)->driver(), source, destination, true, reinterpret_cast<CUstream>(*source.stream)));
  return true;
}

}  // namespace arraybridge
