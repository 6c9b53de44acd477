// SPDX-License-Identifier: Apache-2.0
// Streams that are being captured into a graph. Work that is queued there is recorded and not executed, and an event
// that is recorded there never occurs. Waiting for the stream invalidates the capture, and so does use of the default
// stream while a stream that synchronises with it is captured. So this library queries a stream before it queues work:
// this query harms no capture, not even of the default stream.
#pragma once

#include <cstdint>
#include <span>

#include <arraybridge/view.h>

#include "client/memory/cuda/cuda_devices.h"
#include "proto/boundary/result.h"

namespace arraybridge {

inline cuda::CUstream StreamOf(uintptr_t number) { return reinterpret_cast<cuda::CUstream>(number); }

// True if the stream is being captured: work must not be queued to it, nor other queries made. REQUIRES: inside its
// context.
Result<bool> IsCaptured(const cuda::Driver& driver, uintptr_t stream);

// FAILED_PRECONDITION, STREAM_CAPTURING, if one of the streams is being captured: then later work cannot be ordered
// after its producer. REQUIRES: inside their context.
Status CheckNotCaptured(const cuda::Driver& driver, std::span<const uintptr_t> streams);

// The same for the streams of these arrays' producers. Makes no query for host memory and for arrays without a stream.
Status CheckProducersNotCaptured(std::span<const View> arrays);

}  // namespace arraybridge
