// GPUs as this process sees them, for whoever hands arrays from one framework to another: which there are, on which one
// an address lies, and the order between streams. The driver is loaded with the first call that needs it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <arraybridge/view.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// In the order of their numbers here. UNAVAILABLE: no driver, or no GPU.
Result<std::vector<Device>> VisibleGpus();

// Whether copies from one of these GPUs, by VisibleGpus' numbers, to another go directly, and not by way of the host.
// False for GPUs that are not visible.
bool CopiesDirectly(int32_t from, int32_t to);

// INVALID_ARGUMENT: it is no address of a GPU's memory. UNAVAILABLE: no driver.
Result<Device> GpuOf(const void* address);

// What the view's producer has queued has ended, also in another process. At once for host memory and for views of
// bytes that are there. UNAVAILABLE, FENCE_LOST: their producer died before they were. FAILED_PRECONDITION,
// STREAM_CAPTURING: their producer's stream is being captured into a graph.
Status WaitForProducer(const View& view);

// What is queued on `stream` (View::stream's numbers) from now on comes after what the view's producer has queued so
// far, also in another process; nothing waits here, unless `stream` is being captured into a graph, which cannot depend
// on work outside of it. Nothing to do for host memory and for views of bytes that are there. FAILED_PRECONDITION as
// above.
Status OrderAfterProducer(const View& view, uintptr_t stream);

// A private, writable, compact copy in this process's own memory on the GPU of the source. What is queued on `stream`
// (View::stream's numbers) from now on comes after it; 0: it is there when this returns. RESOURCE_EXHAUSTED;
// FAILED_PRECONDITION, STREAM_CAPTURING: `stream`, or the producer's, is being captured into a graph.
// REQUIRES: the source lies on a GPU.
Result<View> CopyOnGpu(const View& source, uintptr_t stream);

// Writes each source, an array in host memory of any strides, into the destination of the same index: compact memory on
// a GPU, of as many bytes. Done on return. By pinned memory, and with one wait for all that go to one GPU in the order
// of one stream, which is the destination's View::stream. INVALID_ARGUMENT: not as many, or not such destinations.
// FAILED_PRECONDITION: a device that this process does not see, or a stream that is being captured.
Status CopyToGpus(std::span<const View> sources, std::span<const View> rooms);

// While one lives, nothing in this process asks a GPU whether all of its work has ended. Hold one around the capture of
// a graph: that question, which a release of GPU memory needs, would invalidate it, and captures on streams that do not
// wait for the default stream cannot be seen from outside. What is dropped meanwhile is given back afterwards.
// Thread-safe.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

}  // namespace arraybridge
