// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/closing.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "proto/boundary/frame.h"

namespace arraybridge::daemon {
namespace {

constexpr off_t kQuickBytes = 16 << 20;    // are freed in about a millisecond
constexpr unsigned kFirst = 3;             // standard descriptors stay
constexpr unsigned kNumbersMax = 1 << 16;  // the keeper opens fewer than 17,000

bool IsQuick(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return true;
  return S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode) || (S_ISREG(file.st_mode) && file.st_size <= kQuickBytes);
}

void CloseRange(unsigned first, unsigned last) {
  if (first > last || ::close_range(first, last, 0) == 0) return;
  // An older kernel, or a container that forbids the call; limits of a thousand million are common there.
  for (unsigned fd = first; fd <= last && fd < kNumbersMax; ++fd) ::close(static_cast<int>(fd));
}

void CloseOthers(std::span<int> kept) {
  std::ranges::sort(kept);
  unsigned next = kFirst;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > next) CloseRange(next, static_cast<unsigned>(fd) - 1);
    next = static_cast<unsigned>(fd) + 1;
  }
  CloseRange(next, ~0u);
}

// Runs in the new process.
[[noreturn]] void EndWith(std::span<const int> descriptors, int keeper) {
  std::array<int, Closing::kSocketsMax + 1> kept{};
  const auto end = std::ranges::copy(descriptors, kept.begin()).out;
  *end = keeper;
  CloseOthers({kept.begin(), end + 1});
  char word = 'r';
  static_cast<void>(!::write(keeper, &word, 1));
  while (::read(keeper, &word, 1) < 0 && errno == EINTR) continue;  // until the keeper has closed its own
  ::_exit(0);                                                       // which closes them
}

}  // namespace

void Closing::CloseSocket(int fd) {
  if (TakesNoDescriptors(fd)) return static_cast<void>(::close(fd));
  if (count_ == kSocketsMax) Start();
  sockets_[count_++] = fd;
}

void Closing::Close(int fd) {
  if (IsQuick(fd)) {
    ::close(fd);
  } else {
    CloseAside({&fd, 1}, for_memory_);
  }
}

void Closing::Start() {
  if (count_ > 0) CloseAside({sockets_.data(), count_}, for_sockets_);
  count_ = 0;
}

void Closing::CloseAside(std::span<const int> descriptors, Processes& processes) {
  const auto free = std::ranges::find(processes, 0);
  std::array<int, 2> pair{-1, -1};
  const bool can_start =
      free != processes.end() && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0;
  const pid_t started = can_start ? ::fork() : -1;
  if (started == 0) {
    ::close(pair[0]);
    EndWith(descriptors, pair[1]);
  }
  if (can_start) ::close(pair[1]);
  if (started > 0) {
    *free = started;
    char word = 0;
    while (::read(pair[0], &word, 1) < 0 && errno == EINTR) continue;
  }
  for (const int fd : descriptors) ::close(fd);
  if (can_start) ::close(pair[0]);
}

bool Closing::Ended(pid_t child) {
  for (Processes* const processes : {&for_sockets_, &for_memory_}) {
    const auto its = std::ranges::find(*processes, child);
    if (its == processes->end()) continue;
    *its = 0;
    return true;
  }
  return false;
}

}  // namespace arraybridge::daemon
