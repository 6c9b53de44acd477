// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace arraybridge::ctl {

Result<int> RunChild(std::vector<std::string> words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return NotFound("there is no ", words.front());
  if (error != 0) return Internal(words.front(), ": ", std::strerror(error));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return Internal(words.front(), " was ended by signal ", WTERMSIG(status));
  return WEXITSTATUS(status);
}

}  // namespace arraybridge::ctl
