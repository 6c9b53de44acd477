// SPDX-License-Identifier: Apache-2.0
// An accepted socket that a library closes without notice: a door remembers its identity, and for HTTP the peer's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace arraybridge::daemon {

using IpAddress = std::array<uint8_t, 16>;  // in IPv6 form

// The socket's inode. No other socket has it while this one is open, and no later socket with the same descriptor has
// it: the kernel numbers sockets in the order of their creation. 0: `descriptor` is not open.
uint64_t InodeOf(int descriptor);

// Nullopt: the socket is not connected. REQUIRES: it is a TCP socket.
std::optional<IpAddress> PeerAddressOf(int descriptor);

// The clients that count as one: a client that has one IPv6 address usually has the whole /64 network.
IpAddress GroupOf(IpAddress address);

// Shuts the socket down if `descriptor` still is that socket.
void ShutDownSocket(int descriptor, uint64_t inode);

}  // namespace arraybridge::daemon
