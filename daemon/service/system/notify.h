// What the service manager is told (sd_notify): a datagram to $NOTIFY_SOCKET, without libsystemd.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace arraybridge {

// `state`: "READY=1", "STOPPING=1", "STATUS=...", lines joined by \n. Nothing happens when no manager asked for it.
void NotifyManager(std::string_view state);

// What the manager says in a variable such as $WATCHDOG_USEC. Nothing: it is not there, or no number.
std::optional<int64_t> NumberFromManager(const char* variable);

}  // namespace arraybridge
