#include "daemon/service/notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

void NotifyManager(std::string_view state) {
  const char* named = std::getenv("NOTIFY_SOCKET");
  if (named == nullptr) return;
  const std::string_view path(named);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@')) return;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket: the address length is part of the name
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
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

}  // namespace arraybridge
