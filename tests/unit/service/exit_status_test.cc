// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/exit_status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

bool KernelTellsOfReapedProcesses() {
  utsname name{};
  int major = 0;
  int minor = 0;
  return ::uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 15));
}

// The parent takes the process away while the question is asked: /proc loses it between two looks.
TEST(ExitStatusTest, AKilledProcessNeverLooksLikeOneThatHasExited) {
  if (!KernelTellsOfReapedProcesses()) GTEST_SKIP() << "Linux before 6.15 tells nothing of a process that was reaped";
  for (int i = 0; i < 2000; ++i) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    ::close(ends[1]);
    ::kill(child, SIGKILL);
    char none = 0;
    ASSERT_EQ(::read(ends[0], &none, 1), 0);  // its descriptors are closed: it is ending
    ::close(ends[0]);
    std::jthread parent([child] { ::waitpid(child, nullptr, 0); });
    std::optional<int> signal;
    while (!signal) signal = KilledBy(pidfd.get(), static_cast<uint64_t>(child));
    ASSERT_EQ(*signal, SIGKILL) << "round " << i;
  }
}

}  // namespace
}  // namespace arraybridge::daemon
