// SPDX-License-Identifier: Apache-2.0
// Makes the descriptors of this process those that a service manager has passed to it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "daemon/service/system/passed_sockets.h"

namespace arraybridge::daemon {

// The caller keeps its descriptors; the PassedSockets get duplicates, from 3 on. REQUIRES: the test uses no other
// descriptor below 3 + the number of these.
inline Result<PassedSockets> Passed(const std::vector<std::pair<std::string, int>>& descriptors) {
  constexpr int kFirst = 3;
  const int beyond = kFirst + static_cast<int>(descriptors.size());
  std::vector<int> moved;  // first, because a source may stand where another one goes
  std::string names;
  for (const auto& [name, fd] : descriptors) {
    moved.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, beyond));
    names += (names.empty() ? "" : ":") + name;
  }
  for (int number = kFirst; number < beyond; ++number) {
    ::dup2(moved[static_cast<size_t>(number - kFirst)], number);
    ::close(moved[static_cast<size_t>(number - kFirst)]);
  }
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", std::to_string(descriptors.size()).c_str(), 1);
  ::setenv("LISTEN_FDNAMES", names.c_str(), 1);
  return PassedSockets::FromEnvironment();
}

// A descriptor whose number no call of Passed uses.
inline UniqueFd Aside(int fd) {
  constexpr int kAside = 6000;
  UniqueFd moved(::fcntl(fd, F_DUPFD_CLOEXEC, kAside));
  ::close(fd);
  return moved;
}

}  // namespace arraybridge::daemon
