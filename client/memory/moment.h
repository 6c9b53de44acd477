// A Moment is a point in a device's work: all that this process had queued there when it was asked for. It tells
// whether that has ended, and never waits.
#pragma once

#include <cstdint>

#include "proto/boundary/result.h"

namespace arraybridge {

class Moment {
 public:
  enum class State : uint8_t {
    kPassed,
    kPending,
    kHeldUp,  // somebody captures a graph: while that goes on a device cannot be asked
  };

  virtual ~Moment() = default;

  // Thread-safe. An error: it will never be known.
  virtual Result<State> Look() = 0;
};

// Whether a capture that this process knows of keeps it from asking some device: a release then comes later.
bool DevicesHeldUp();

// Waits for a moment; longer than a little only for work that is running. UNAVAILABLE: held up.
Status WaitFor(Moment& moment);

}  // namespace arraybridge
