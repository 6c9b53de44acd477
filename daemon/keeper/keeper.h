// SPDX-License-Identifier: Apache-2.0
// The keeper is the parent process of a daemon: `arraybridged --keeper [flags of the daemon]`. It holds the descriptors
// that the daemon stores, and starts the daemon anew when it has died; the next daemon receives them. It stands in for
// systemd's descriptor store, with the same datagrams, where there is no systemd. It is the first process of a
// container, or runs below a program that starts a broker of its own.
//
// Everything is lost with the keeper, so it does nothing else. It has one thread, and allocates no memory once the
// first daemon has been started. Calls that may sleep run in processes of their own (closing.h).
#pragma once

namespace arraybridge::daemon {

// Whether --keeper is among the arguments.
bool AsksForKeeper(int argc, const char* const* argv);

// Returns the exit status of the process. REQUIRES: the process has one thread.
int RunKeeper(int argc, char** argv);

}  // namespace arraybridge::daemon
