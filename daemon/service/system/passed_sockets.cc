// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/passed_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "daemon/service/system/notify.h"

namespace arraybridge::daemon {
namespace {

constexpr int kFirst = 3;            // SD_LISTEN_FDS_START
constexpr int64_t kMost = 16 << 10;  // a plausibility limit: a store holds half as many
constexpr std::string_view kKinds = "acjlhqdg";

int Option(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

Status CheckKind(std::string_view name, int socket) {
  const int domain = Option(socket, SO_DOMAIN);
  const int type = Option(socket, SO_TYPE);
  const bool local = domain == AF_UNIX;
  const bool internet = domain == AF_INET || domain == AF_INET6;
  const auto refused = [name](std::string_view wanted) {
    return InvalidArgument("the socket passed as '", name, "' is not ", wanted);
  };
  if (name == PassedSockets::kLifeline && !(local && type == SOCK_SEQPACKET)) {
    return refused("a Unix socket of type seqpacket (ListenSequentialPacket=)");
  }
  if ((name == PassedSockets::kGrpc || name == PassedSockets::kAdmin) && !(local && type == SOCK_STREAM)) {
    return refused("a Unix socket of type stream (ListenStream=)");
  }
  if (name == PassedSockets::kHttp && !(internet && type == SOCK_STREAM))
    return refused("a TCP socket (ListenStream=)");
  return Option(socket, SO_ACCEPTCONN) == 1 ? Ok() : refused("listening (Accept=no)");
}

bool IsHexadecimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool IsDoor(std::string_view name) {
  return name == PassedSockets::kLifeline || name == PassedSockets::kGrpc || name == PassedSockets::kAdmin ||
         name == PassedSockets::kHttp;
}

// The door in a name of the form "lifeline.1a.2f03"; empty for another form.
std::string_view DoorOfOwn(std::string_view name) {
  const size_t first = name.find('.');
  const size_t second = first == name.npos ? first : name.find('.', first + 1);
  const std::string_view door = name.substr(0, std::min(first, name.size()));
  if (second == name.npos || !(IsDoor(door) || door == PassedSockets::kTcp)) return {};
  const bool is_file =
      IsHexadecimal(name.substr(first + 1, second - first - 1)) && IsHexadecimal(name.substr(second + 1));
  return is_file ? name.substr(0, first) : std::string_view();
}

std::vector<std::string> Split(std::string_view names) {
  std::vector<std::string> parts;
  while (!names.empty()) {
    const size_t colon = std::min(names.find(':'), names.size());
    parts.emplace_back(names.substr(0, colon));
    names.remove_prefix(std::min(colon + 1, names.size()));
  }
  return parts;
}

}  // namespace

Result<PassedSockets> PassedSockets::FromEnvironment() {
  const auto meant_for = NumberFromManager("LISTEN_PID");
  const auto count = NumberFromManager("LISTEN_FDS");
  const char* const named = std::getenv("LISTEN_FDNAMES");
  const std::vector<std::string> names = Split(named == nullptr ? "" : named);
  for (const char* const variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  PassedSockets passed;
  if (!meant_for || *meant_for != ::getpid() || !count || *count <= 0) return passed;
  if (*count > kMost) return InvalidArgument("$LISTEN_FDS: ", *count, " descriptors are more than ", kMost);
  std::vector<UniqueFd> received;  // owns all descriptors before one can be refused
  for (int fd = kFirst; fd < kFirst + static_cast<int>(*count); ++fd) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    received.emplace_back(fd);
  }
  for (size_t i = 0; i < received.size(); ++i) {
    passed.names_.push_back(i < names.size() ? names[i] : "");
    AB_RETURN_IF_ERROR(passed.Add(passed.names_.back(), std::move(received[i])));
  }
  return passed;
}

bool PassedSockets::IsStoredName(std::string_view name) {
  return !name.empty() && kKinds.find(name[0]) != kKinds.npos && IsHexadecimal(name.substr(1));
}

std::string PassedSockets::OwnName(std::string_view door, const FileIdentity& file) {
  std::array<char, 32> text;
  const int size = std::snprintf(text.data(), text.size(), ".%x.%x", static_cast<uint32_t>(file.device),
                                 static_cast<uint32_t>(file.inode));
  return std::string(door) + std::string(text.data(), static_cast<size_t>(size));
}

Status PassedSockets::Add(std::string_view name, UniqueFd fd) {
  if (!IsStoredName(name)) return AddSocket(name, std::move(fd));
  stored_.push_back({std::string(name), std::move(fd)});
  return Ok();
}

Status PassedSockets::AddSocket(std::string_view name, UniqueFd socket) {
  const std::string_view own = DoorOfOwn(name);
  if (!IsDoor(name) && own.empty()) {
    return InvalidArgument("a socket was passed as '", name, "'; supported names are ", kLifeline, ", ", kGrpc, ", ",
                           kAdmin, " and ", kHttp, " (FileDescriptorName=)");
  }
  AB_RETURN_IF_ERROR(CheckKind(own.empty() ? name : own, socket.get()));
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  if (!own.empty()) {
    own_.emplace(own, StoredDescriptor{std::string(name), std::move(socket)});
    return Ok();
  }
  if (sockets_.emplace(name, std::move(socket)).second) return Ok();
  return InvalidArgument("two sockets were passed as '", name, "'");
}

UniqueFd PassedSockets::Take(std::string_view name) {
  const auto found = sockets_.find(name);
  if (found == sockets_.end()) return UniqueFd();
  UniqueFd socket = std::move(found->second);
  sockets_.erase(found);
  return socket;
}

std::vector<StoredDescriptor> PassedSockets::TakeOwn(std::string_view door) {
  std::vector<StoredDescriptor> taken;
  const auto [first, last] = own_.equal_range(door);
  for (auto each = first; each != last; ++each) taken.push_back(std::move(each->second));
  own_.erase(first, last);
  return taken;
}

std::vector<StoredDescriptor> PassedSockets::TakeStored() { return std::exchange(stored_, {}); }

}  // namespace arraybridge::daemon
