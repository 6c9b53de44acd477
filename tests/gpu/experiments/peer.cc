// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/experiments/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tests/gpu/experiments/message.h"

namespace arraybridge::experiments {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& more) {
  std::vector<std::string> all = more;  // the first value of a name counts
  for (char** each = environ; *each != nullptr; ++each) all.emplace_back(*each);
  return all;
}

// Of a peer that has ended, if there is no message.
Answer AnswerOf(std::optional<Message> message) {
  Answer answer;
  answer.died = !message.has_value();
  if (answer.died) return answer;
  const size_t space = message->text.find(' ');
  answer.code = std::atoi(message->text.c_str());
  if (space != std::string::npos) answer.value = message->text.substr(space + 1);
  answer.descriptor = std::move(message->descriptor);
  return answer;
}

}  // namespace

std::string Answer::ToString() const {
  if (late) return "no answer";
  if (died) return "died";
  return value.empty() ? std::to_string(code) : std::to_string(code) + ": " + value;
}

Peer::Peer(std::string name, const PeerOptions& options, std::optional<std::chrono::steady_clock::time_point> deadline,
           Late late)
    : name_(std::move(name)), deadline_(deadline), late_(std::move(late)) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  socket_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<std::string> words = options.under;
  const std::vector<std::string> program{"/proc/self/exe", "peer", options.experiment, name_, options.driver};
  words.insert(words.end(), program.begin(), program.end());
  // The path of this process, not of the command that starts it.
  char own[4096];
  const ssize_t length = ::readlink("/proc/self/exe", own, sizeof own);
  words[options.under.size()].assign(own, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  std::vector<std::string> environment = EnvironmentWith(options.environment);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  if (::posix_spawnp(&id_, words[0].c_str(), &actions, nullptr, Pointers(words).data(), Pointers(environment).data()) !=
      0) {
    id_ = 0;
  }
  ::posix_spawn_file_actions_destroy(&actions);
}

Peer::~Peer() {
  Kill();
  End();
}

void Peer::Say(const std::string& command, int descriptor) {
  doing_ = command;
  Send(socket_.get(), command, descriptor);
}

Answer Peer::Hear() {
  if (!socket_.valid()) return AnswerOf({});
  bool late = false;
  auto message = Receive(socket_.get(), deadline_, &late);
  if (late) late_(name_ + " did not answer '" + doing_ + "'");
  return AnswerOf(std::move(message));
}

Answer Peer::DoWithin(const std::string& command, std::chrono::steady_clock::time_point deadline) {
  Say(command);
  bool late = false;
  Answer answer = AnswerOf(Receive(socket_.get(), deadline, &late));
  if (!late) return answer;
  answer.late = true;
  Kill();
  id_ = 0;
  socket_.reset();
  return answer;
}

Answer Peer::Do(const std::string& command, int descriptor) {
  Say(command, descriptor);
  return Hear();
}

void Peer::Kill() const {
  if (id_ > 0) ::kill(id_, SIGKILL);
}

void Peer::End() {
  socket_.reset();
  if (id_ > 0) ::waitpid(id_, nullptr, 0);
  id_ = 0;
}

}  // namespace arraybridge::experiments
