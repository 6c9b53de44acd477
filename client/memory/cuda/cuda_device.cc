// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/device.h>

#include "client/memory/cuda/cuda_capture.h"
#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/fence_event.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge {

using cuda::CUstream;

Result<std::vector<Device>> VisibleGpus() {
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  return devices->all();
}

bool CopiesDirectly(int32_t from, int32_t to) {
  const auto devices = CudaDevices::OfThisProcess();
  if (!devices.ok()) return false;
  const auto number = static_cast<int32_t>((*devices)->all().size());
  const auto visible = [number](int32_t ordinal) { return ordinal >= 0 && ordinal < number; };
  return visible(from) && visible(to) && (*devices)->Reaches(from, to);
}

Result<Device> GpuOf(const void* address) {
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  const cuda::Driver& driver = devices->driver();
  int ordinal = -1;
  const auto ask = [&] {
    return driver.PointerGetAttribute(&ordinal, cuda::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      reinterpret_cast<cuda::CUdeviceptr>(address));
  };
  cuda::CUresult result = ask();
  if (result == cuda::CUDA_ERROR_INVALID_CONTEXT) {
    // Some drivers answer in a thread with a context alone. Memory on a GPU has one, whichever.
    const std::vector<int32_t> active = devices->Active();
    if (!active.empty()) {
      AB_ASSIGN_OR_RETURN(const auto inside, devices->Enter(active.front()));
      result = ask();
    }
  }
  AB_RETURN_IF_ERROR(driver.CheckInput(result, "cuPointerGetAttribute", "the address is not in the memory of a GPU"));
  return devices->Find({kDeviceCuda, ordinal, {}});
}

Status WaitForProducer(const View& view) {
  if (view.device.type != kDeviceCuda) return Ok();
  if (view.fence) AB_RETURN_IF_ERROR(view.fence->Wait());
  if (!view.stream.has_value() || Failpoint("stream_sync")) return Ok();
  AB_ASSIGN_OR_RETURN(const auto place, CudaDevices::At(view.device));
  const cuda::Driver& driver = place.driver;
  AB_RETURN_IF_ERROR(CheckNotCaptured(driver, std::span(&*view.stream, 1)));
  return driver.Check(driver.StreamSynchronize(StreamOf(*view.stream)), "cuStreamSynchronize");
}

Status OrderAfterProducer(const View& view, uintptr_t stream) {
  if (view.device.type != kDeviceCuda) return Ok();
  if (view.fence) AB_RETURN_IF_ERROR(view.fence->OrderBefore(stream));
  if (!view.stream.has_value() || *view.stream == stream) return Ok();
  AB_ASSIGN_OR_RETURN(const auto place, CudaDevices::At(view.device));
  const cuda::Driver& driver = place.driver;
  AB_ASSIGN_OR_RETURN(const auto captured, IsCaptured(driver, stream));
  AB_RETURN_IF_ERROR(CheckNotCaptured(driver, std::span(&*view.stream, 1)));
  // A graph that is being captured cannot depend on work outside of it.
  if (captured) return driver.Check(driver.StreamSynchronize(StreamOf(*view.stream)), "cuStreamSynchronize");
  cuda::CUevent event = nullptr;
  AB_RETURN_IF_ERROR(driver.Check(driver.EventCreate(&event, cuda::kEventDisableTiming), "cuEventCreate"));
  Status ordered = driver.Check(driver.EventRecord(event, StreamOf(*view.stream)), "cuEventRecord");
  if (ordered.ok()) ordered = driver.Check(driver.StreamWaitEvent(StreamOf(stream), event, 0), "cuStreamWaitEvent");
  // A queued wait outlives its event.
  driver.EventDestroy(event);
  return ordered;
}

}  // namespace arraybridge
