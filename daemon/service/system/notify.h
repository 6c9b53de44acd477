// SPDX-License-Identifier: Apache-2.0
// Notifications to the service manager (sd_notify): a datagram to $NOTIFY_SOCKET, without libsystemd.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

struct UnixAddress {
  sockaddr_un storage{};
  socklen_t size = 0;
};

// The address in $NOTIFY_SOCKET: a path, or @ and an abstract name; nullopt for another form.
std::optional<UnixAddress> ManagerAddress(std::string_view name);

// A socket that sends to the manager of $NOTIFY_SOCKET: that address, or, as fd:NUMBER, the descriptor that the keeper
// has passed. Invalid: there is no manager.
UniqueFd ManagerSocket();

// `state`: "READY=1", "STOPPING=1", "STATUS=...", lines joined by \n. Does nothing if no manager has set
// $NOTIFY_SOCKET.
void NotifyManager(std::string_view state);

// The number in a variable that the manager sets, such as $WATCHDOG_USEC; nullopt if it is missing or not a number.
std::optional<int64_t> NumberFromManager(const char* variable);

}  // namespace arraybridge::daemon
