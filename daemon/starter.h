// What whoever starts the daemon has passed to it beside words: a descriptor for the ready line, and one whose end is
// the daemon's. The numbers are his; what is open under them is looked at before the daemon opens anything of its own.
#pragma once

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// INVALID_ARGUMENT names the flag and the number, of which the starter has passed nothing, or which is for something
// else. REQUIRES: nothing of the daemon's is open yet.
Status CheckStarter(const Config& config);

// Writes the ready line, if one is wanted, and closes its descriptor. False: nobody reads there any more.
bool TellStarter(const Config& config);

}  // namespace arraybridge
