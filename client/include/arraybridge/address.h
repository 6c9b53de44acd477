// Finds the daemon of this host, in the same order as Python and arraybridgectl: docs/operations.md has the table.
#pragma once

#include <string>

namespace arraybridge {

// The directory of the daemon's sockets, the first of: $ARRAYBRIDGE_ADDRESS; $XDG_RUNTIME_DIR/arraybridge, or
// /tmp/arraybridge-UID if that variable is not set; /run/arraybridge; $NVIDIA_DRA_LOCAL_IPC_DIR/arraybridge. The
// directories count if they contain `socket`; one of a user counts if no other user can write to it. If none counts:
// /run/arraybridge. Does not connect.
std::string FindAddress(const std::string& socket = "lifeline.sock");

}  // namespace arraybridge
