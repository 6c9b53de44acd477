// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/notify.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace arraybridge::daemon {

std::optional<UnixAddress> ManagerAddress(std::string_view name) {
  UnixAddress address;
  address.storage.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.storage.sun_path || (name[0] != '/' && name[0] != '@')) {
    return std::nullopt;
  }
  std::memcpy(address.storage.sun_path, name.data(), name.size());
  if (name[0] == '@') address.storage.sun_path[0] = '\0';
  // The name of an abstract socket ends where the address ends.
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return address;
}

UniqueFd ManagerSocket() {
  constexpr std::string_view kPassed = "fd:";
  const char* const named = std::getenv("NOTIFY_SOCKET");
  const std::string_view name = named == nullptr ? "" : named;
  if (name.starts_with(kPassed)) {
    int fd = -1;
    std::from_chars(name.data() + kPassed.size(), name.data() + name.size(), fd);
    return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }
  const auto address = ManagerAddress(name);
  if (!address) return UniqueFd();
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address->storage);
  if (!socket.valid() || ::connect(socket.get(), generic, address->size) != 0) return UniqueFd();
  return socket;
}

void NotifyManager(std::string_view state) {
  const UniqueFd socket = ManagerSocket();
  if (socket.valid()) ::send(socket.get(), state.data(), state.size(), MSG_NOSIGNAL);
}

std::optional<int64_t> NumberFromManager(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const char* const last = text + std::strlen(text);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text, last, number);
  if (error != std::errc{} || end != last) return std::nullopt;
  return number;
}

}  // namespace arraybridge::daemon
