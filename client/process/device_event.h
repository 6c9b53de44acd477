// SPDX-License-Identifier: Apache-2.0
// A DeviceEvent is the end of all work that this process had queued on a device when the DeviceEvent was requested.
#pragma once

#include <cstdint>

#include "proto/boundary/result.h"

namespace arraybridge {

class DeviceEvent {
 public:
  enum class State : uint8_t {
    kPassed,
    kPending,
    kHeldUp,  // a graph is being captured; until it ends the device cannot be queried
  };

  virtual ~DeviceEvent() = default;

  // Returns the state; never waits. Thread-safe. An error: the state will never be known.
  virtual Result<State> Poll() = 0;
  // Waits for it. Thread-safe. UNAVAILABLE: a graph is being captured.
  virtual Status Wait() = 0;
};

}  // namespace arraybridge
