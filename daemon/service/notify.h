// What the service manager is told (sd_notify): a datagram to $NOTIFY_SOCKET, without libsystemd.
#pragma once

#include <string_view>

namespace arraybridge {

// `state`: "READY=1", "STOPPING=1", "STATUS=...", lines joined by \n. Nothing happens when no manager asked for it.
void NotifyManager(std::string_view state);

}  // namespace arraybridge
