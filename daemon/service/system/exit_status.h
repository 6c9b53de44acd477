// SPDX-License-Identifier: Apache-2.0
// Whether a process was killed, as the kernel tells it to processes that are not its parent.
#pragma once

#include <cstdint>
#include <optional>

namespace arraybridge::daemon {

// The signal by which the process ended; 0: it lives, or has exited by itself, or was asked to end (SIGHUP, SIGINT,
// SIGTERM). nullopt: it is ending, and the kernel does not tell yet how. Linux 6.15 and later tell it of every process
// that its parent has waited for. Before that, and until then, /proc tells it of processes of the daemon's own user, or
// of all with CAP_SYS_PTRACE. `pidfd`: -1 if there is none.
std::optional<int> KilledBy(int pidfd, uint64_t process_id);

}  // namespace arraybridge::daemon
