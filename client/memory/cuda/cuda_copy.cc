// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies, followed by a synchronisation of their stream, or by none if a fence follows.
#include "client/memory/cuda/cuda_copy.h"

#include <arraybridge/device.h>

#include "client/memory/cuda/cuda_capture.h"
#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/cuda/cuda_staging.h"
#include "client/memory/fence_event.h"
#include "client/memory/layout.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUstream;

namespace {

CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

// The stream of the view's producer, or one of our own if the bytes are complete.
Result<CUstream> StreamFor(const CudaDevices& devices, const View& view, int32_t ordinal) {
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
  // By address, because the ends may lie on two GPUs.
  return driver.Check(driver.MemcpyAsync(AddressOf(destination), AddressOf(source.data), bytes, stream),
                      "cuMemcpyAsync", bytes, " bytes");
}

// Large copies go through pinned chunks if some are free; otherwise the driver stages pageable memory itself.
Status CopyNow(const cuda::Driver& driver, const View& source, void* destination, bool to_device, CUstream stream) {
  const uint64_t bytes = source.nbytes();
  const bool from_device = source.device.type == kDeviceCuda;
  if (from_device != to_device && bytes >= kStagedBytesMin) {
    const HostToDevice whole{static_cast<const std::byte*>(source.data), AddressOf(destination), bytes};
    const auto staged = to_device ? CopyStagedToDevice(driver, std::span(&whole, 1), stream)
                                  : CopyStagedToHost(driver, AddressOf(source.data),
                                                     static_cast<std::byte*>(destination), bytes, stream);
    if (!staged.ok() || *staged) return staged.status();
  }
  const Status enqueued = Enqueue(driver, source, destination, to_device, stream);
  // Synchronise even after an error: a queued copy may still use both ends.
  const Status done = driver.Check(driver.StreamSynchronize(stream), "cuStreamSynchronize", bytes, " bytes");
  return enqueued.ok() ? done : enqueued;
}

Status CopyCompactOver(const CudaDevices& devices, const View& source, void* destination, const Device& to,
                       int32_t ordinal) {
  AB_ASSIGN_OR_RETURN(const auto inside, devices.Enter(ordinal));
  AB_ASSIGN_OR_RETURN(const auto stream, StreamFor(devices, source, ordinal));
  const auto number = reinterpret_cast<uintptr_t>(stream);
  AB_RETURN_IF_ERROR(CheckNotCaptured(devices.driver(), std::span(&number, 1)));
  if (source.fence) AB_RETURN_IF_ERROR(source.fence->OrderBefore(number));
  Status copied = CopyNow(devices.driver(), source, destination, to.type == kDeviceCuda, stream);
  if (copied.reason() != "CUDA_ERROR_INVALID_HANDLE" || !source.fence) return copied;
  // The error may be that of the producer's fence, which describes itself better.
  const Status lost = source.fence->Wait();
  return lost.ok() ? copied : lost;
}

// For copies between GPUs without peer access.
Status CopyByHost(const View& source, void* destination, const Device& to) {
  AB_ASSIGN_OR_RETURN(const auto staged, CopyToHeap(source));
  return CopyOverDevice(staged, destination, to);
}

// Copies the span of a strided view to this process's host memory and returns the same view there, where strides cost
// nothing.
Result<View> SpanOnHost(const View& source) {
  AB_ASSIGN_OR_RETURN(const auto extent, layout::ExtentOf(source.shape, source.strides));
  const int64_t item = int64_t{source.type.bits} * source.type.lanes / 8;  // whole bytes: Describe accepts no others
  View span = source;
  span.data = static_cast<std::byte*>(source.data) + extent.lowest * item;
  span.shape = {extent.highest - extent.lowest + 1};
  span.strides = {1};
  auto copied = CopyToHeap(span);
  if (!copied.ok()) return copied;
  View on_host = source;
  on_host.device = {};
  on_host.stream.reset();
  on_host.fence.reset();
  on_host.data = static_cast<std::byte*>(copied->data) - extent.lowest * item;
  on_host.owner = copied->owner;
  return on_host;
}

// Uses pinned chunks if the size is worth it and some are free; the copies are complete on return.
Status CopyTogether(const cuda::Driver& driver, std::span<const HostToDevice> copies, CUstream stream) {
  uint64_t bytes = 0;
  for (const HostToDevice& copy : copies) bytes += copy.bytes;
  if (bytes >= kStagedBytesMin || copies.size() > 1) {
    const auto staged = CopyStagedToDevice(driver, copies, stream);
    if (!staged.ok() || *staged) return staged.status();
  }
  Status enqueued = Ok();
  for (const HostToDevice& copy : copies) {
    enqueued = driver.Check(driver.MemcpyHtoDAsync(copy.to, copy.from, copy.bytes, stream), "cuMemcpyHtoDAsync",
                            copy.bytes, " bytes");
    if (!enqueued.ok()) break;
  }
  // Synchronise even after an error: a queued copy may still use both ends.
  const Status done = driver.Check(driver.StreamSynchronize(stream), "cuStreamSynchronize", bytes, " bytes");
  return enqueued.ok() ? done : enqueued;
}

// Collects copies to one GPU, in the order of one stream.
class HostBatch {
 public:
  explicit HostBatch(const CudaDevices& devices) : devices_(devices) {}

  // Adds a copy. If it does not fit into the batch (another GPU or stream), the batch is executed first. REQUIRES:
  // CheckPair returned OK.
  Status Add(const View& source, const View& destination) {
    if (!copies_.empty() && (destination.device.id != latest_.device.id || destination.stream != latest_.stream))
      AB_RETURN_IF_ERROR(Make());
    latest_ = destination;
    AB_ASSIGN_OR_RETURN(const auto compact, source.compact() ? Result<View>(source) : CopyToHeap(source));
    copies_.push_back({static_cast<const std::byte*>(compact.data), AddressOf(destination.data), compact.nbytes()});
    // A packed copy of the source lives only during this call; otherwise a large batch would need all of its memory
    // twice.
    return source.compact() ? Ok() : Make();
  }

  Status Make() {
    if (copies_.empty()) return Ok();
    AB_ASSIGN_OR_RETURN(const auto at, devices_.Find(latest_.device));
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(at.id));
    AB_ASSIGN_OR_RETURN(const auto stream, StreamFor(devices_, latest_, at.id));
    const auto number = reinterpret_cast<uintptr_t>(stream);
    AB_RETURN_IF_ERROR(CheckNotCaptured(devices_.driver(), std::span(&number, 1)));
    Status made = CopyTogether(devices_.driver(), copies_, stream);
    copies_.clear();
    return made;
  }

 private:
  const CudaDevices& devices_;
  std::vector<HostToDevice> copies_;
  View latest_;  // of the latest copy
};

Status CheckPair(const View& source, const View& destination) {
  if (source.device.type != kDeviceCpu && source.device.type != kDeviceCuda)
    return InvalidArgument("the source is neither in host memory nor on a GPU");
  if (destination.device.type != kDeviceCuda) return InvalidArgument("the destination is not on a GPU");
  if (!destination.compact()) return InvalidArgument("the destination is strided");
  if (destination.nbytes() == source.nbytes()) return Ok();
  return InvalidArgument("an array of ", source.nbytes(), " bytes for a destination of ", destination.nbytes());
}

}  // namespace

Status CopyToGpus(std::span<const View> sources, std::span<const View> destinations) {
  if (sources.size() != destinations.size())
    return InvalidArgument(sources.size(), " arrays for ", destinations.size(), " destinations");
  for (size_t i = 0; i < sources.size(); ++i) AB_RETURN_IF_ERROR(CheckPair(sources[i], destinations[i]));
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  HostBatch batch(*devices);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].nbytes() == 0) continue;
    if (sources[i].device.type == kDeviceCpu) {
      AB_RETURN_IF_ERROR(batch.Add(sources[i], destinations[i]));
      continue;
    }
    AB_RETURN_IF_ERROR(WaitForProducer(destinations[i]));
    AB_RETURN_IF_ERROR(CopyOverDevice(sources[i], destinations[i].data, destinations[i].device));
  }
  return batch.Make();
}

Status CopyOverDevice(const View& source, void* destination, const Device& to) {
  if (source.nbytes() == 0) return Ok();
  const bool from_device = source.device.type == kDeviceCuda;
  AB_CHECK(from_device || to.type == kDeviceCuda);
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto at, devices->Find(from_device ? source.device : to));
  if (from_device && to.type == kDeviceCuda) {
    AB_ASSIGN_OR_RETURN(const auto target, devices->Find(to));
    if (target.id != at.id && !devices->Reaches(at.id, target.id)) return CopyByHost(source, destination, target);
  }
  if (source.compact()) return CopyCompactOver(*devices, source, destination, to, at.id);
  if (from_device) {
    AB_ASSIGN_OR_RETURN(const auto span, SpanOnHost(source));
    if (to.type == kDeviceCuda) return CopyOverDevice(span, destination, to);
    return CopyCompact(span, destination), Ok();
  }
  AB_ASSIGN_OR_RETURN(const auto packed, CopyToHeap(source));
  return CopyCompactOver(*devices, packed, destination, to, at.id);
}

Result<bool> QueueCopy(const View& source, void* destination, const Device& to) {
  if (source.nbytes() == 0) return false;
  const bool follows = source.device.type == kDeviceCuda && source.stream.has_value() && source.stream_is_producers;
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto from, follows ? devices->Find(source.device) : devices->Find(to));
  const auto target = devices->Find(to);
  // Only within one GPU: the fence is recorded on the GPU that receives the bytes.
  if (!follows || from.id != target->id || !source.compact()) {
    AB_RETURN_IF_ERROR(CopyOverDevice(source, destination, to));
    return false;
  }
  AB_ASSIGN_OR_RETURN(const auto inside, devices->Enter(from.id));
  AB_RETURN_IF_ERROR(CheckNotCaptured(devices->driver(), std::span(&*source.stream, 1)));
  if (source.fence) AB_RETURN_IF_ERROR(source.fence->OrderBefore(*source.stream));
  AB_RETURN_IF_ERROR(Enqueue(devices->driver(), source, destination, true, reinterpret_cast<CUstream>(*source.stream)));
  return true;
}

}  // namespace arraybridge
