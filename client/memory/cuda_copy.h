// Copies of which one end, or both, lie on a GPU, and waiting for all of one. Whatever returns has happened: there is
// no fence but "done".
#pragma once

#include <arraybridge/view.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Copies every element of `source` to `destination` on the device `to`, compact row-major, in the order of the stream
// that the source's producer works on, and waits for that stream, never for the device; from one GPU to another by way
// of the host. FAILED_PRECONDITION: a device that this process does not see. UNIMPLEMENTED: a strided source on a GPU.
// REQUIRES: destination holds source.nbytes() bytes and does not overlap it; one of both is on a GPU.
Status CopyOverDevice(const View& source, void* destination, const Device& to);

// Everything that this process has queued on that GPU has ended. Waits: not for threads in a hurry.
Status DrainDevice(const Device& device);

}  // namespace arraybridge
