// SPDX-License-Identifier: Apache-2.0
#include "daemon/inherited_fds.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "daemon/service/system/notify.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

// sd_listen_fds(3): LISTEN_FDS descriptors from 3 on. PassedSockets checks LISTEN_PID.
bool IsListeningSocket(int fd) {
  const auto count = NumberFromManager("LISTEN_FDS");
  return count && fd > STDERR_FILENO && fd - STDERR_FILENO <= *count;
}

// A descriptor that is open when the program starts was inherited.
Status CheckOpen(std::string_view flag, int fd) {
  if (fd < 0) return Ok();
  if (::fcntl(fd, F_GETFD) < 0) return InvalidArgument(flag, ": ", fd, " is not an open descriptor");
  if (!IsListeningSocket(fd)) return Ok();
  return InvalidArgument(flag, ": ", fd, " is a listening socket of the service manager (LISTEN_FDS)");
}

}  // namespace

Status CheckInheritedFds(const Config& config) {
  AB_RETURN_IF_ERROR(CheckOpen("--ready-fd", config.ready_fd));
  AB_RETURN_IF_ERROR(CheckOpen("--life-fd", config.life_fd));
  if (config.ready_fd == STDERR_FILENO) {
    return InvalidArgument("--ready-fd: ", config.ready_fd, " is standard error, which receives the log");
  }
  if (config.ready_fd < 0 || config.ready_fd != config.life_fd) return Ok();
  return InvalidArgument("--life-fd: ", config.life_fd, " is also the value of --ready-fd");
}

bool WriteReadyLine(const Config& config) {
  if (config.ready_fd < 0) return true;
  constexpr std::string_view ready = "ready\n";
  UniqueFd ready_fd(config.ready_fd);
  const bool written = ::write(ready_fd.get(), ready.data(), ready.size()) >= 0;
  if (ready_fd.get() > STDERR_FILENO) return written;
  // /dev/null takes its number; otherwise the next descriptor to be opened would become standard input or output.
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(nothing.get(), ready_fd.release());
  return written;
}

}  // namespace arraybridge::daemon
