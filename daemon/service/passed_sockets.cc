#include "daemon/service/passed_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "daemon/service/notify.h"

namespace arraybridge {
namespace {

constexpr int kFirst = 3;           // SD_LISTEN_FDS_START
constexpr int64_t kMost = 1 << 10;  // a plausibility limit

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
  if (*count > kMost) return InvalidArgument("$LISTEN_FDS: ", *count, " sockets are more than ", kMost);
  std::vector<UniqueFd> sockets;  // owns all sockets before one can be refused
  for (int fd = kFirst; fd < kFirst + static_cast<int>(*count); ++fd) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets.emplace_back(fd);
  }
  for (size_t i = 0; i < sockets.size(); ++i) {
    AB_RETURN_IF_ERROR(passed.Add(i < names.size() ? names[i] : "", std::move(sockets[i])));
  }
  return passed;
}

Status PassedSockets::Add(std::string_view name, UniqueFd socket) {
  if (name != kLifeline && name != kGrpc && name != kAdmin && name != kHttp) {
    return InvalidArgument("a socket was passed as '", name, "'; supported names are ", kLifeline, ", ", kGrpc, ", ",
                           kAdmin, " and ", kHttp, " (FileDescriptorName=)");
  }
  AB_RETURN_IF_ERROR(CheckKind(name, socket.get()));
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
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

}  // namespace arraybridge
