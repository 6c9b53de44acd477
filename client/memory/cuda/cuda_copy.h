// SPDX-License-Identifier: Apache-2.0
// Copies with one end or both on a GPU, and waiting for all work of a GPU.
#pragma once

#include <span>

#include <arraybridge/view.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Copies every element of `source` to `destination` on the device `to`, compact and row-major, in the order of the
// stream of the source's producer. Waits for that stream, never for the device. Copies between GPUs without peer
// access, and copies of a strided source from GPU to GPU, go through the host. FAILED_PRECONDITION: a device that this
// process does not see, or a producer's stream that is being captured (STREAM_CAPTURING). REQUIRES: destination holds
// source.nbytes() bytes and does not overlap the source; one of both is on a GPU.
Status CopyOverDevice(const View& source, void* destination, const Device& to);

// Only queues the copy on the source's stream, where that is safe: on one GPU, for a compact source whose producer
// queues later changes on the same stream (View::stream_is_producers). Then returns true, and the source must live
// until the stream has executed the copy. Otherwise copies as above and returns false.
Result<bool> QueueCopy(const View& source, void* destination, const Device& to);

}  // namespace arraybridge
