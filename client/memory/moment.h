// A Moment is a point in a device's work: all that this process had queued there when it was asked for.
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

  // Whether it has come; never waits. Thread-safe. An error: it will never be known.
  virtual Result<State> Look() = 0;
  // Waits for it. Thread-safe. UNAVAILABLE: held up.
  virtual Status Wait() = 0;
};

}  // namespace arraybridge
