// SPDX-License-Identifier: Apache-2.0
// The end of the work of a GPU. Frameworks use arrays on streams that this library does not know, so a release must
// follow all work in the primary context. One event over the whole context is recorded for all memory that was dropped
// until then, and polled. Drivers before CUDA 12.5 have no such event; there the release waits for the context.
//
// Both queries would invalidate a graph capture in the context, whatever the capture mode of the calling thread
// (relaxing it allows only potentially unsafe calls, such as unmapping). So no query is made
//   - while a CaptureScope lives, whose holder captures or is about to;
//   - while the default stream reports that a stream which synchronises with it is capturing. This is the only query
//     about captures of other threads that harms none. It does not see captures on non-blocking streams;
//   - for some time after the driver refused an answer because of a capture that was not detected.
#pragma once

#include <cstdint>
#include <memory>

#include "client/memory/cuda/cuda_devices.h"
#include "client/process/device_event.h"

namespace arraybridge {

// The end of the present work in the primary context of that GPU. Callers share one DeviceEvent until it is first
// looked at. REQUIRES: an ordinal from Find.
std::shared_ptr<DeviceEvent> DeviceEventOf(const CudaDevices& devices, int32_t ordinal);

// Waits for the work that is queued there, then destroys `memory`, which unmaps, frees or closes. While a graph is
// being captured, the memory is kept until a later call finds no capture. Memory is leaked rather than released under
// work that uses it.
void ReleaseAfterWork(const CudaDevices& devices, int32_t ordinal, std::shared_ptr<const void> memory);

}  // namespace arraybridge
