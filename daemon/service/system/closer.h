// SPDX-License-Identifier: Apache-2.0
// The closer closes descriptors that an untrusted client controls: a descriptor that it sent, or a socket that may hold
// an unread one. Closing the last reference to such a file can block the closing thread for as long as the client
// likes. So separate threads do it, and no other thread waits for them. Only kernels before Linux 6.16 allow such
// clients (Connection::takes_no_descriptors).
#pragma once

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Thread-safe; returns at once. If all threads of the closer are blocked, a new one starts, up to a limit; beyond it
// the descriptor stays open until a thread is free. A thread that has closed its descriptor ends; one waits for the
// next.
void CloseAside(UniqueFd descriptor);

}  // namespace arraybridge::daemon
