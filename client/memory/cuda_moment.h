// When the work of a GPU has ended. What a framework did with an array is on streams that we were never told, so a
// release has to come after everything in the primary context: an event over the whole of it, recorded once for all
// that was dropped until then, and asked for from time to time. Drivers older than CUDA 12.5 have no such event; there
// the context is waited for.
//
// A context in which a graph is being captured can be asked neither way: the question itself would invalidate the
// capture, whatever the asking thread's mode (relaxing it allows what is only potentially unsafe, as unmapping). So
// nobody asks
//   - while a CaptureScope lives: its holder says that he captures, or is about to;
//   - while the default stream says that a stream which it would have to wait for is capturing, the one question about
//     a capture elsewhere that harms none. It knows nothing of streams made not to wait for it;
//   - for some time after the driver refused an answer because of a capture that could not be foreseen.
#pragma once

#include <cstdint>
#include <memory>

#include "client/memory/cuda_devices.h"
#include "client/memory/moment.h"

namespace arraybridge {

// Of the primary context of that GPU. Those who ask before it is looked at share one. REQUIRES: an ordinal that Find
// gave.
std::shared_ptr<Moment> MomentOf(const CudaDevices& devices, int32_t ordinal);

// Waits for what is queued there, then lets go of `memory`, which unmaps, frees or closes. While a graph is being
// captured it is kept, until the next memory is let go of after that. Better never than under work that still uses it.
void LetGoAfterWork(const CudaDevices& devices, int32_t ordinal, std::shared_ptr<const void> memory);

}  // namespace arraybridge
