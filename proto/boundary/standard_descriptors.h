// The numbers 0, 1 and 2, which every program writes to and reads from without asking whose they are.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Those that the starter left closed lead to nothing from now on. What is told to standard error would else go into
// whatever is opened next: a lock, a socket, memory that is shared. REQUIRES: the program has opened nothing yet.
inline void FillStandardDescriptors() {
  while (true) {
    UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!nothing.valid() || nothing.get() > STDERR_FILENO) return;
    nothing.release();  // the lowest number that was free: it stays as long as the process
  }
}

}  // namespace arraybridge
