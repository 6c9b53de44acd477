// SPDX-License-Identifier: Apache-2.0
// PassedSockets are the descriptors that this process received when it was started, each with a name (sd_listen_fds).
// There are three kinds. The service manager listens on sockets for the daemon: "lifeline". An earlier daemon bound
// sockets itself and stored them: "lifeline.1a.2f03", with device and inode of the socket's file. An earlier daemon
// stored memory and connections: "a1f", see StoredDescriptor. In sockets of both kinds, clients wait that connected
// before this daemon started.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/memory/descriptor_store.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Identifies a file independently of its path.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

class PassedSockets {
 public:
  static constexpr std::string_view kLifeline = "lifeline";
  static constexpr std::string_view kGrpc = "broker";
  static constexpr std::string_view kAdmin = "admin";
  static constexpr std::string_view kHttp = "http";
  static constexpr std::string_view kTcp = "tcp";  // in the store of 0.1 only

  // Holds no socket.
  PassedSockets() = default;
  // Reads $LISTEN_PID, $LISTEN_FDS and $LISTEN_FDNAMES and unsets them, so that a child process does not use them.
  // INVALID_ARGUMENT names a descriptor whose name is unknown, or a socket whose name is used twice or whose kind does
  // not match its name. REQUIRES: called once, before threads are started.
  static Result<PassedSockets> FromEnvironment();

  // Whether a name is that of memory or a connection in a DescriptorStore. Such a name is a letter of the kinds
  // (arenas, catalogues, journals, lifelines, hazard pages, queues, direct channels, GPUs), then hexadecimal digits.
  static bool IsStoredName(std::string_view name);
  // The name under which a daemon stores a socket that it has bound itself: "lifeline.1a.2f03". The socket of HTTP has
  // no file. An inode is cut to 32 bits, so that the name stays short. No inode is given out twice while it is in use,
  // and no directory contains two that differ only above.
  static std::string OwnName(std::string_view door, const FileIdentity& file);

  // The names of all received descriptors, in their order.
  const std::vector<std::string>& names() const { return names_; }
  // The non-blocking, listening socket of this name; invalid if none was passed.
  UniqueFd Take(std::string_view name);
  // The sockets that earlier daemons have stored for this door, non-blocking and listening. More than one if the file
  // of an earlier one was replaced.
  std::vector<StoredDescriptor> TakeOwn(std::string_view door);
  // Memory and connections, in the order of the holder. The keeper keeps the order in which they were stored, systemd
  // reverses it. Their flags are unchanged, except for close-on-exec.
  std::vector<StoredDescriptor> TakeStored();

 private:
  Status Add(std::string_view name, UniqueFd fd);
  Status AddSocket(std::string_view name, UniqueFd socket);

  std::vector<std::string> names_;
  std::map<std::string, UniqueFd, std::less<>> sockets_;
  std::multimap<std::string, StoredDescriptor, std::less<>> own_;  // by door
  std::vector<StoredDescriptor> stored_;
};

}  // namespace arraybridge::daemon
