// Streams that are being captured into a graph. What is queued there is recorded and does not happen, an event that is
// recorded there never does either, and waiting for it, as using the default stream while a stream that it would have
// to wait for is captured, invalidates the capture. So a stream is asked before anything is queued to it: that question
// alone harms no capture, not even of the default stream.
#pragma once

#include <cstdint>
#include <span>

#include <arraybridge/view.h>

#include "client/memory/cuda_devices.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Nothing may be queued to the stream, or asked of it, as long as a graph is captured. REQUIRES: inside its context.
Result<bool> IsCaptured(const cuda::Driver& driver, uintptr_t stream);

// FAILED_PRECONDITION, STREAM_CAPTURING, if one of them is: then what their producers queue cannot be followed.
// REQUIRES: inside their context.
Status CheckNotCaptured(const cuda::Driver& driver, std::span<const uintptr_t> streams);

// The same for the streams of these arrays' producers. Asks nothing for host memory, and where none is named.
Status CheckProducersNotCaptured(std::span<const View> arrays);

}  // namespace arraybridge
