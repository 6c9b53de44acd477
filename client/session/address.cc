// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include <arraybridge/address.h>

#include "proto/boundary/environment.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

constexpr std::string_view kSystemDirectory = "/run/arraybridge";

bool HasSocket(const std::string& directory, const std::string& socket) {
  return ::access((directory + "/" + socket).c_str(), F_OK) == 0;
}

// A daemon that was killed leaves its sockets.
bool IsListening(const std::string& directory, const std::string& socket) {
  const std::string path = directory + "/" + socket;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return false;
  path.copy(name.sun_path, path.size());
  const int type = socket == "lifeline.sock" ? SOCK_SEQPACKET : SOCK_STREAM;
  const UniqueFd probe{::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN;
}

// True if no other user can have put a socket there.
bool IsOwn(const std::string& directory) {
  struct stat found {};
  if (::lstat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return false;
  return found.st_uid == ::getuid() && (found.st_mode & 022) == 0;
}

}  // namespace

std::string FindAddress(const std::string& socket) {
  if (auto named = Environment("ARRAYBRIDGE_ADDRESS"); !named.empty()) return named;
  const std::string runtime = RuntimeDirectory();
  std::string temporary = Environment("TMPDIR");
  if (temporary.empty()) temporary = "/tmp";
  std::string own = runtime.empty() ? Concat(temporary, "/arraybridge-", ::getuid()) : Concat(runtime, "/arraybridge");
  // A runtime directory of another user (su without -, sudo -E) is not this user's: its owner could replace the socket.
  const bool has_own = (runtime.empty() || IsOwn(runtime)) && IsOwn(own) && HasSocket(own, socket);
  if (has_own && IsListening(own, socket)) return own;
  // A daemon of the system that does not listen may be about to start again.
  if (std::string system(kSystemDirectory); HasSocket(system, socket)) return system;
  const std::string shared = Environment("NVIDIA_DRA_LOCAL_IPC_DIR");
  if (!shared.empty() && HasSocket(shared + "/arraybridge", socket)) return shared + "/arraybridge";
  return has_own ? own : std::string(kSystemDirectory);
}

}  // namespace arraybridge
