#include "daemon/service/system/notify.h"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

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

void NotifyManager(std::string_view state) {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  const auto address = ManagerAddress(named == nullptr ? "" : named);
  if (!address) return;
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address->storage),
           address->size);
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
