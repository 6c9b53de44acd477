// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process: their list, the GPU of an address, and the order between streams. For programs that pass
// arrays from one framework to another. The driver is loaded by the first call that needs it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <arraybridge/view.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// In the order of their ordinals in this process. UNAVAILABLE: no driver, or no GPU.
Result<std::vector<Device>> VisibleGpus();

// True if copies from one GPU to another, by VisibleGpus' ordinals, are direct and do not go through the host. False
// for GPUs that are not visible.
bool CopiesDirectly(int32_t from, int32_t to);

// Returns the GPU of an address. INVALID_ARGUMENT: the address is not GPU memory. UNAVAILABLE: no driver.
Result<Device> GpuOf(const void* address);

// Waits until the work of the view's producer, possibly in another process, has ended. Returns at once for host memory
// and for complete bytes. UNAVAILABLE, FENCE_LOST: the producer died before the bytes were complete.
// FAILED_PRECONDITION, STREAM_CAPTURING: the producer's stream is being captured into a graph.
Status WaitForProducer(const View& view);

// Orders work that is queued on `stream` (numbers as View::stream) from now on after the work that the view's producer,
// possibly in another process, has queued so far. Does not block, unless `stream` is being captured into a graph, which
// cannot depend on work outside of it. Does nothing for host memory and complete bytes. FAILED_PRECONDITION as above.
Status OrderAfterProducer(const View& view, uintptr_t stream);

// Returns a private, writable, compact copy in this process's own memory on the GPU of the source. Work that is queued
// on `stream` (numbers as View::stream) from now on is ordered after the copy; 0: the copy is complete on return.
// RESOURCE_EXHAUSTED. FAILED_PRECONDITION, STREAM_CAPTURING: `stream` or the producer's stream is being captured into a
// graph. REQUIRES: the source lies on a GPU.
Result<View> CopyOnGpu(const View& source, uintptr_t stream);

// Copies each source, an array with any strides, into the destination of the same index: compact memory on a GPU, of
// the same size. The copies are complete on return. Copies from host memory go through pinned memory and need one wait
// per GPU and stream, which is the destination's View::stream. Each copy from a GPU is ordered after the work of the
// source's producer, and needs a wait of its own. INVALID_ARGUMENT: the counts differ, or a destination is not such
// memory. FAILED_PRECONDITION: a device that this process does not see, or a stream that is being captured. REQUIRES:
// no destination overlaps a source or another destination.
Status CopyToGpus(std::span<const View> sources, std::span<const View> destinations);

// While a CaptureScope lives, this library does not query whether all work of a GPU has ended. Create one around the
// capture of a graph. Releasing GPU memory needs that query, which would invalidate the capture. Captures on streams
// that do not synchronise with the default stream cannot be detected. Memory that is dropped meanwhile is released
// afterwards. Thread-safe.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

}  // namespace arraybridge
