// Copies of which one end, or both, lie on a GPU, and waiting for all of one.
#pragma once

#include <span>

#include <arraybridge/view.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Copies every element of `source` to `destination` on the device `to`, compact row-major, in the order of the stream
// that the source's producer works on, and waits for that stream, never for the device. By way of the host: from one
// GPU to another that does not reach its memory, and a strided source on a GPU to one. FAILED_PRECONDITION: a device
// that this process does not see, or a producer's stream that is being captured (STREAM_CAPTURING). REQUIRES:
// destination holds source.nbytes() bytes and does not overlap it; one of both is on a GPU.
Status CopyOverDevice(const View& source, void* destination, const Device& to);

// The same, only queued, where that is safe: on one GPU, of a compact source whose producer's later work comes after
// it (View::stream_is_producers), on that stream. Then true, and the source must live until the stream came so far;
// else false, and the bytes are there.
Result<bool> QueueCopy(const View& source, void* destination, const Device& to);

}  // namespace arraybridge
