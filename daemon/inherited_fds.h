// SPDX-License-Identifier: Apache-2.0
// Descriptors that the parent process passes by number: --ready-fd receives the ready line, and the daemon ends when
// --life-fd does. Both are checked before the daemon opens a descriptor of its own.
#pragma once

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// INVALID_ARGUMENT names the flag and the number: the descriptor is not open, or it serves another purpose.
// REQUIRES: the daemon has opened no descriptor yet.
Status CheckInheritedFds(const Config& config);

// Writes the ready line, if --ready-fd asks for one, and closes the descriptor. False: its reader has gone.
bool WriteReadyLine(const Config& config);

}  // namespace arraybridge::daemon
