#include "client/ctl/config.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <system_error>
#include <vector>

extern char** environ;

namespace arraybridge::ctl {
namespace {

constexpr char kDaemon[] = "arraybridged";

// A path, or a bare name for $PATH.
std::string FindDaemon() {
  std::error_code failed;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", failed).replace_filename(kDaemon);
  return !failed && ::access(beside.c_str(), X_OK) == 0 ? beside.string() : kDaemon;
}

}  // namespace

Status CheckConfig(const std::string& file, std::ostream& out) {
  std::vector<std::string> words = {FindDaemon(), "--check-config"};
  if (!file.empty()) words.insert(words.end(), {"--config", file});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return NotFound("there is no ", kDaemon, " beside this program or in $PATH to read it");
  if (error != 0) return Internal(kDaemon, ": ", std::strerror(error));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return Internal(kDaemon, " was ended by signal ", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return FailedPrecondition("no broker starts with this configuration");
  out << "ok\n";
  return Ok();
}

}  // namespace arraybridge::ctl
