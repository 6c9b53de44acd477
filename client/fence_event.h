// Events between processes, as the rest of the client sees them: what a producer records when it publishes bytes that
// its device has yet to write, and what a reader waits for. How they are made is the business of memory/cuda_*.
#pragma once

#include <cstdint>
#include <string>

#include "proto/boundary/result.h"

namespace arraybridge {

// The reader's side. Valid while the lease lives that it came with: after that the producer may record it anew.
// Thread-safe.
class FenceEvent {
 public:
  virtual ~FenceEvent() = default;

  // Returns when the bytes are there. Errors are the device's; UNAVAILABLE: the producer died before.
  virtual Status Wait() const = 0;
  // What is queued on `stream` (View::stream's numbers) from now on comes after it; nothing waits here, unless the
  // stream is being captured into a graph, which cannot wait for what is outside of it.
  virtual Status OrderBefore(uintptr_t stream) const = 0;
};

// The producer's side: one event, recorded once. Destroying it lets the event be recorded anew for another share.
// REQUIRES: then nobody may still wait for it; or Retire.
class RecordedEvent {
 public:
  virtual ~RecordedEvent() = default;

  // As others open it.
  virtual const std::string& handle() const = 0;
  // Never waits. ABORTED: the device failed for good, does no work any more, and what it was to write is not there.
  // Another error: nobody can tell now, and the work may still be queued.
  virtual Result<bool> Passed() const = 0;
  // Somebody may wait for it as long as this process lives: it is never recorded again.
  virtual void Retire() = 0;
};

}  // namespace arraybridge
