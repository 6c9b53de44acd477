// The Capture is the recording of a graph that is open, if any: while it is, calls that may not be made then answer 900
// to 907 and invalidate it. Nothing is recorded; what is enqueued to a capturing stream never happens. Potentially
// unsafe calls are forbidden by the modes of capture and thread; waiting for what is only recorded, or for a context
// that has it, is forbidden always, as is using the default stream while a stream that it would have to wait for is
// capturing.
#pragma once

#include <thread>

#include "proto/boundary/driver_abi.h"

namespace arraybridge::simulated {

struct Event;
class Stream;

struct Capture {
  bool open = false;
  bool invalidated = false;
  cuda::CUstreamCaptureMode mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id maker;
  const void* context = nullptr;
  bool blocking = false;  // the default stream of that context would have to wait for it

  // True, and the capture is invalidated, if this thread must not make the call now.
  bool Forbids(const char* symbol);
  // Of calls that concern all the work of a context, whatever the thread's mode.
  bool ForbidsContext(const void* asked);
  // Of calls that put something into that stream. 0, or what they answer.
  cuda::CUresult RefusalToUse(const Stream& used);
  // Of calls that wait for that stream, or ask whether it is done. 0, or what they answer.
  cuda::CUresult RefusalToWaitFor(const Stream& awaited);
  cuda::CUresult RefusalToWaitFor(const Event& awaited);
  // Of making work in a stream come after an event: what is captured depends on nothing outside. 0, or what it answers.
  cuda::CUresult RefusalToDependOn(const Event& awaited, const Stream& waiting);
};

// This thread's mode, which cuThreadExchangeStreamCaptureMode exchanges.
cuda::CUstreamCaptureMode& ThreadCaptureMode();

}  // namespace arraybridge::simulated
