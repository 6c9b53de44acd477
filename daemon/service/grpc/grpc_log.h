// SPDX-License-Identifier: Apache-2.0
// Writes gRPC's own log lines into the daemon's log, with a limit per second, because clients can cause most.
#pragma once

namespace arraybridge::daemon {

// Takes effect for the rest of the process.
void TakeGrpcLog();

}  // namespace arraybridge::daemon
