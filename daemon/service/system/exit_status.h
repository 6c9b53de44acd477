// SPDX-License-Identifier: Apache-2.0
// Whether a process was killed or failed, as the kernel tells it to processes that are not its parent.
#pragma once

#include <cstdint>

namespace arraybridge {

// True if the process has ended by a signal or with an exit status other than 0. Linux 6.15 and later tell it of every
// process that was waited for; before that, and until then, /proc tells it of processes of the daemon's own user, or of
// all with CAP_SYS_PTRACE. False if the process lives, or if the kernel does not tell. `pidfd`: -1 if there is none.
bool HasFailed(int pidfd, uint64_t process_id);

}  // namespace arraybridge
