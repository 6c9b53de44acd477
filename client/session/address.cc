#include <sys/stat.h>
#include <unistd.h>

#include <arraybridge/address.h>

#include "proto/boundary/environment.h"
#include "proto/boundary/result.h"

namespace arraybridge {
namespace {

constexpr std::string_view kSystemDirectory = "/run/arraybridge";

bool HasSocket(const std::string& directory, const std::string& socket) {
  return ::access((directory + "/" + socket).c_str(), F_OK) == 0;
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
  if (IsOwn(own) && HasSocket(own, socket)) return own;
  if (std::string system(kSystemDirectory); HasSocket(system, socket)) return system;
  const std::string shared = Environment("NVIDIA_DRA_LOCAL_IPC_DIR");
  if (!shared.empty() && HasSocket(shared + "/arraybridge", socket)) return shared + "/arraybridge";
  return std::string(kSystemDirectory);
}

}  // namespace arraybridge
