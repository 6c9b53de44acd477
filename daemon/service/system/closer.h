// The closer closes what a stranger chose: a descriptor that a client sent, or a socket that may hold one unread. The
// last reference to such a file can put the closing thread to sleep for as long as its maker likes, so it is a thread
// that nobody waits for. Only kernels before Linux 6.16 let a client get that far (Connection::takes_no_descriptors).
#pragma once

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe; returns at once. Threads are started when all others sleep, up to a limit; beyond that the descriptor
// stays open until one of them wakes up.
void CloseAside(UniqueFd descriptor);

}  // namespace arraybridge
