// SPDX-License-Identifier: Apache-2.0
// Device events shared between processes, as the rest of the client sees them. A producer records one when it publishes
// bytes that its device has yet to write, and a reader waits for it. memory/cuda_* implements them.
#pragma once

#include <cstdint>
#include <string>

#include "proto/boundary/result.h"

namespace arraybridge {

// The reader's side. Valid as long as the lease that it came with; afterwards the producer may record the event again.
// Thread-safe.
class FenceEvent {
 public:
  virtual ~FenceEvent() = default;

  // Returns when the bytes are written. UNAVAILABLE: the producer died before that. Other errors are the device's.
  virtual Status Wait() const = 0;
  // Orders all work queued on `stream` (numbered as View::stream) after the event. This call does not wait, unless the
  // stream is being captured into a graph, which cannot wait for an event outside of it.
  virtual Status OrderBefore(uintptr_t stream) const = 0;
};

// The producer's side: one event, recorded once. Its destructor lets the event be recorded again for another share.
// REQUIRES: at that time no process waits for it, or Retire was called.
class RecordedEvent {
 public:
  virtual ~RecordedEvent() = default;

  // The handle with which other processes open it.
  virtual const std::string& handle() const = 0;
  // Never waits. ABORTED: the device has failed permanently, does no more work, and the bytes were not written. Any
  // other error: the state is unknown, and the work may still be queued.
  virtual Result<bool> Passed() const = 0;
  // Another process may wait for this event as long as this process lives, so it is never recorded again.
  virtual void Retire() = 0;
};

}  // namespace arraybridge
