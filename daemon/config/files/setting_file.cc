// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/files/setting_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace arraybridge::daemon {
namespace {

constexpr size_t kBytesMax = 1 << 20;

}  // namespace

UniqueFd OpenSettingFile(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

Result<std::string> ReadSettingFile(const UniqueFd& file, const std::string& path, mode_t forbidden,
                                    std::string_view because) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return InvalidArgument(path, ": is not a file");
  if ((found.st_mode & forbidden) != 0) return InvalidArgument(path, ": ", because);
  std::string text;
  std::string part(16384, '\0');
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument(path, ": ", std::strerror(errno));
    if (got == 0) return text;
    text.append(part, 0, static_cast<size_t>(got));
    if (text.size() > kBytesMax) return InvalidArgument(path, ": is longer than ", kBytesMax, " bytes");
  }
}

}  // namespace arraybridge::daemon
