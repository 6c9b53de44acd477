// Whether this process gets the descriptors and threads that a daemon is made of. What it is built of ends the process
// where it gets none, without a word of why.
#pragma once

#include "proto/boundary/result.h"

namespace arraybridge {

// Takes as many as a daemon that serves nobody yet needs, and gives them back. RESOURCE_EXHAUSTED names the limit.
Status CheckRoomToStart();

}  // namespace arraybridge
