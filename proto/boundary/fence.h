// A Fence says how far the producer's work must have come before bytes may be read: there is nothing left to wait for
// (done), or an interprocess event of the producer's must have happened.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace arraybridge {

inline constexpr size_t kEventBytes = 64;  // of a CUipcEventHandle

// What a device is still writing is there soon: so long the broker keeps those waiting who cannot wait for its event
// themselves, whatever they asked for, unless they can wait less.
inline constexpr std::chrono::milliseconds kFenceWait{5000};

struct Fence {
  // The event as cuIpcOpenEventHandle takes it; empty: done. Who has it can only wait, but it is nobody else's: never
  // logged, never listed.
  std::string event;

  bool done() const { return event.empty(); }
};

}  // namespace arraybridge
