// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/child.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace arraybridge::daemon {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr int kExitCannotExecute = 127;
constexpr std::string_view kReadyFlag = "--ready-fd";
constexpr std::string_view kLifeFlag = "--life-fd";

std::string OwnProgram() {
  std::array<char, 4096> path;
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  return size < 0 ? std::string() : std::string(path.data(), static_cast<size_t>(size));
}

// `--flag N` as `--flag=N`, so that each number is in one argument.
std::vector<std::string> WithJoinedNumbers(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 0; i < argc; ++i) {
    const std::string_view each(argv[i]);
    if (each == "--keeper") continue;
    arguments.emplace_back(each);
    if ((each == kReadyFlag || each == kLifeFlag) && i + 1 < argc) arguments.back().append("=").append(argv[++i]);
  }
  return arguments;
}

// The number in the last argument of the form flag=N that is an open descriptor; -1 if there is none.
int NumberAfter(std::string_view flag, const std::vector<std::string>& arguments) {
  int found = -1;
  for (const std::string& each : arguments) {
    if (!each.starts_with(flag) || each.size() <= flag.size() || each[flag.size()] != '=') continue;
    std::from_chars(each.data() + flag.size() + 1, each.data() + each.size(), found);
  }
  return found > STDERR_FILENO && ::fcntl(found, F_SETFD, FD_CLOEXEC) == 0 ? found : -1;
}

void Renumber(std::string_view flag, int number, std::vector<std::string>& arguments) {
  for (std::string& each : arguments) {
    if (each.starts_with(flag) && each.size() > flag.size() && each[flag.size()] == '=') {
      each = std::string(flag) + "=" + std::to_string(number);
    }
  }
}

void SetVariable(const char* name, std::uintmax_t value) { ::setenv(name, std::to_string(value).c_str(), 1); }

}  // namespace

Child::Child(int argc, char** argv, const sigset_t& mask)
    : mask_(mask), path_(OwnProgram()), arguments_(WithJoinedNumbers(argc, argv)) {
  ready_fd_ = NumberAfter(kReadyFlag, arguments_);
  life_fd_ = NumberAfter(kLifeFlag, arguments_);
}

pid_t Child::Start(HeldDescriptors& held, const Variables& variables) {
  const pid_t keeper = ::getpid();
  const pid_t started = ::fork();
  if (started == 0) Become(held, variables, keeper);
  return started;
}

// Runs in the new process, which may allocate: its parent had one thread.
void Child::Become(HeldDescriptors& held, const Variables& variables, pid_t keeper) {
  const int notify_fd = PassDescriptors(held, variables.notify_fd);
  ::setenv("NOTIFY_SOCKET", ("fd:" + std::to_string(notify_fd)).c_str(), 1);
  ::setenv("KEEPER_LAST_END", variables.last_end, 1);
  // Recovery fills a heap that may be large: in pages of 4 KiB the kernel takes as long to provide it.
  ::setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0);
  SetVariable("FDSTORE", variables.entries_max);
  SetVariable("KEEPER_PID", static_cast<uintmax_t>(keeper));
  SetVariable("LISTEN_PID", static_cast<uintmax_t>(::getpid()));
  SetVariable("LISTEN_FDS", held.entries().size());
  ::setenv("LISTEN_FDNAMES", held.JoinedNames(), 1);
  if (std::getenv("WATCHDOG_PID") != nullptr) SetVariable("WATCHDOG_PID", static_cast<uintmax_t>(::getpid()));
  std::vector<char*> arguments;
  for (std::string& each : arguments_) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
  ::execv(path_.c_str(), arguments.data());
  ::_exit(kExitCannotExecute);
}

// Moves every descriptor that stands in the range of the new numbers out of it, and then each one to its number.
int Child::PassDescriptors(const HeldDescriptors& held, int notify_fd) {
  std::vector<int> sources;
  for (const HeldDescriptors::Entry& each : held.entries()) sources.push_back(each.fd);
  const int after_held = kFirstPassed + static_cast<int>(sources.size());
  for (const int fd : {notify_fd, ready_fd_, life_fd_}) {
    if (fd >= 0) sources.push_back(fd);
  }
  const int end = kFirstPassed + static_cast<int>(sources.size());
  for (int& fd : sources) {
    if (fd < end) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, end);
  }
  for (int number = kFirstPassed; const int fd : sources) {
    if (::dup2(fd, number++) < 0) ::_exit(kExitCannotExecute);
  }
  if (ready_fd_ >= 0) Renumber(kReadyFlag, after_held + 1, arguments_);
  if (life_fd_ >= 0) Renumber(kLifeFlag, end - 1, arguments_);
  return after_held;
}

void Child::CloseReadyFd() const {
  if (ready_fd_ < 0) return;
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup3(nothing, ready_fd_, O_CLOEXEC);
  ::close(nothing);
}

}  // namespace arraybridge::daemon
