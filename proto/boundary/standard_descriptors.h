// SPDX-License-Identifier: Apache-2.0
// The descriptors 0, 1 and 2, which every program reads and writes without checking what they refer to.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Opens the descriptors 0, 1 and 2 on /dev/null if the parent process left them closed. Otherwise output to standard
// error would go into the next file that is opened: a lock, a socket, or shared memory. REQUIRES: the program has
// opened nothing yet.
inline void FillStandardDescriptors() {
  while (true) {
    UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!nothing.valid() || nothing.get() > STDERR_FILENO) return;
    nothing.release();  // the lowest free number; it stays open until the process exits
  }
}

}  // namespace arraybridge
