// SPDX-License-Identifier: Apache-2.0
// A program exec'd beside a test. Its input and output are pipes, and it ends with the test.
#pragma once

#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// The program must exit with 0 by itself, at the latest when its input ends. If the simulated driver or a sanitizer
// ends it, the test fails. A test that expects another end calls Wait() or Kill().
class Process {
 public:
  // If `inherited` is a descriptor, the program gets it as descriptor 3.
  explicit Process(const std::vector<std::string>& command, int inherited = -1) : name_(command[0]) {
    int in[2];
    int out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    if (inherited >= 0) ::posix_spawn_file_actions_adddup2(&actions, inherited, 3);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    EXPECT_EQ(::posix_spawn(&id_, words[0], &actions, nullptr, words.data(), environ), 0) << command[0];
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    input_.reset(in[1]);
    output_.reset(out[0]);
  }
  ~Process() {
    // After a failure the program may be in a state that never ends.
    if (::testing::Test::HasFailure()) Kill();
    if (id_ > 0) {
      EXPECT_EQ(Wait(), 0) << name_ << " did not end well";
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads one line of its output, or the rest before the end.
  std::string Line() {
    std::string line;
    char byte = 0;
    while (::read(output_.get(), &byte, 1) == 1 && byte != '\n') line += byte;
    return line;
  }
  void Say(const std::string& line) { EXPECT_GT(::write(input_.get(), (line + "\n").c_str(), line.size() + 1), 0); }
  // Ends its input and returns its exit status; -signal if one killed it.
  int Wait() {
    input_.reset();
    int status = 0;
    ::waitpid(id_, &status, 0);
    id_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t id() const { return id_; }
  void Signal(int number) const {
    if (id_ > 0) ::kill(id_, number);
  }
  // Stops the process and returns when all its threads have stopped.
  void Freeze() const {
    Signal(SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(id_, &status, WUNTRACED), id_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // Kills the process. The test fails if it had ended before.
  void Kill() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    EXPECT_EQ(Wait(), -SIGKILL) << name_ << " had ended before it was killed";
  }

 private:
  const std::string name_;
  pid_t id_ = 0;
  UniqueFd input_;
  UniqueFd output_;
};

}  // namespace arraybridge
