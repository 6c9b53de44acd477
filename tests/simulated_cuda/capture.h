// The Capture is the recording of a graph that is open, if any: while it is, calls that may not be made then answer 900
// and invalidate it. Nothing is recorded; what is enqueued to a capturing stream never happens.
#pragma once

#include <thread>

#include "proto/boundary/driver_abi.h"

namespace arraybridge::simulated {

struct Capture {
  bool open = false;
  bool invalidated = false;
  cuda::CUstreamCaptureMode mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id maker;
  cuda::CUstream stream = nullptr;

  // True, and the capture is invalidated, if this thread must not make the call now.
  bool Forbids(const char* symbol);
};

// This thread's mode, which cuThreadExchangeStreamCaptureMode exchanges.
cuda::CUstreamCaptureMode& ThreadCaptureMode();

}  // namespace arraybridge::simulated
