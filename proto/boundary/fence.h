// SPDX-License-Identifier: Apache-2.0
// A Fence says when a producer's bytes may be read: at once (done), or after an interprocess event of the producer.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace arraybridge {

inline constexpr size_t kEventBytes = 64;  // size of a CUipcEventHandle

// Work on a device finishes soon. A client that cannot wait for the event itself is therefore kept waiting by the
// broker for up to this time, whatever timeout it asked for, unless it can wait only a shorter time.
inline constexpr std::chrono::milliseconds kFenceWait{5000};

struct Fence {
  // The event in the form of cuIpcOpenEventHandle; empty: done. Its bytes allow a process only to wait, but they are
  // still private: never logged, never listed.
  std::string event;

  bool done() const { return event.empty(); }
};

}  // namespace arraybridge
