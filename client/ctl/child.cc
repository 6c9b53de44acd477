// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/boundary/environment.h"

namespace arraybridge::ctl {

Result<int> RunChild(std::vector<std::string> words, int output) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return NotFound("there is no ", words.front());
  if (error != 0) return Internal(words.front(), ": ", std::strerror(error));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return Internal(words.front(), " was ended by signal ", WTERMSIG(status));
  return WEXITSTATUS(status);
}

std::string PythonProgram() {
  const std::string started = Environment("ARRAYBRIDGE_PYTHON");
  return started.empty() ? "python3" : started;
}

std::vector<std::string> PythonWords(const std::vector<std::string>& words) {
  // Without the working directory in the path: any user may have written to it.
  constexpr char kRun[] =
      "import sys; sys.path[:] = [path for path in sys.path if path]; import runpy; "
      "runpy.run_module('arraybridge', run_name='__main__', alter_sys=True)";
  std::vector<std::string> all = {PythonProgram(), "-c", kRun};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Result<int> RunPython(const std::vector<std::string>& words, int output) {
  return RunChild(PythonWords(words), output);
}

}  // namespace arraybridge::ctl
