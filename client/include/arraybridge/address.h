// SPDX-License-Identifier: Apache-2.0
// Finds the daemon of this host, in the same order as Python and arraybridgectl: docs/guides/operations.md has the
// table.
#pragma once

#include <string>

namespace arraybridge {

// The directory of the daemon's sockets, the first of: $ARRAYBRIDGE_ADDRESS; $XDG_RUNTIME_DIR/arraybridge, or
// /tmp/arraybridge-UID if that variable is not set; /run/arraybridge; $NVIDIA_DRA_LOCAL_IPC_DIR/arraybridge. The user's
// directory counts if a daemon listens at its `socket` and no other user can write to it, the last two if they contain
// `socket`. If none counts: the user's if it contains `socket`, otherwise /run/arraybridge.
std::string FindAddress(const std::string& socket = "lifeline.sock");

}  // namespace arraybridge
