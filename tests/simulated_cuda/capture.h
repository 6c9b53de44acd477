// SPDX-License-Identifier: Apache-2.0
// The Capture is the graph that is being recorded, if any. During a capture, forbidden calls return 900 to 907 and
// invalidate it. Nothing is recorded; work that is enqueued to a capturing stream never runs. Potentially unsafe calls
// are forbidden according to the modes of capture and thread. Always forbidden are waiting for work that is only
// recorded, or for its context, and using the default stream while a stream that it would have to wait for is
// capturing.
#pragma once

#include <thread>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::simulated {

struct Event;
class Stream;

struct Capture {
  bool open = false;
  bool invalidated = false;
  cuda::CUstreamCaptureMode mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id maker;
  const void* context = nullptr;
  bool blocking = false;  // the context's default stream would have to wait for it

  // True if this thread must not make the call now; then the capture is invalidated.
  bool Forbids(const char* symbol);
  // For calls that concern all work of a context, in any mode of the thread.
  bool ForbidsContext(const void* asked);
  // For calls that enqueue work to this stream: 0, or the error to return.
  cuda::CUresult RefusalToUse(const Stream& used);
  // For calls that wait for this stream or query it: 0, or the error to return.
  cuda::CUresult RefusalToWaitFor(const Stream& awaited);
  cuda::CUresult RefusalToWaitFor(const Event& awaited);
  // For making a stream wait for an event, because captured work must not depend on work outside the graph: 0, or the
  // error to return.
  cuda::CUresult RefusalToDependOn(const Event& awaited, const Stream& waiting);
};

// This thread's capture mode, which cuThreadExchangeStreamCaptureMode exchanges.
cuda::CUstreamCaptureMode& ThreadCaptureMode();

}  // namespace arraybridge::simulated
