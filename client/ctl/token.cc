#include "client/ctl/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ostream>

#include "proto/boundary/text.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {
namespace {

std::string FreshToken() {
  std::array<uint8_t, 16> random{};
  AB_CHECK(::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()));
  return Hex({reinterpret_cast<const char*>(random.data()), random.size()}) + "\n";
}

}  // namespace

Status CreateToken(const std::string& file, std::ostream& out) {
  const std::string token = FreshToken();
  if (file.empty()) {
    out << token;
    return Ok();
  }
  const UniqueFd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made.valid() && errno == EEXIST) return AlreadyExists(file, ": is there already");
  if (!made.valid()) return PermissionDenied(file, ": ", std::strerror(errno));
  if (::write(made.get(), token.data(), token.size()) == static_cast<ssize_t>(token.size())) return Ok();
  const int why = errno;
  ::unlink(file.c_str());
  return Internal(file, ": ", std::strerror(why));
}

}  // namespace arraybridge::ctl
