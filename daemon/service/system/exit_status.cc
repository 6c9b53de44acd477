// SPDX-License-Identifier: Apache-2.0
// The fields after the command's name, which may contain anything, are numbered as in proc_pid_stat(5).
#include "daemon/service/system/exit_status.h"

#include <sys/ioctl.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

namespace arraybridge::daemon {
namespace {

constexpr unsigned long kExiting = 0x4;  // PF_EXITING of the kernel
constexpr int kState = 3;
constexpr int kFlags = 9;
constexpr int kExitCode = 52;

// The first version of struct pidfd_info of <linux/pidfd.h>, which older headers lack.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  std::array<uint32_t, 11> ids;
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kInfoExit = 8;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

// nullopt: the process lives, was not waited for yet, or the kernel is too old.
std::optional<int> ExitCodeOf(int pidfd) {
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (pidfd < 0 || ::ioctl(pidfd, kGetInfo, &info) != 0 || (info.mask & kInfoExit) == 0) return std::nullopt;
  return info.exit_code;
}

// The field as a number; 0 if there is none. `fields` begins with the state.
unsigned long FieldOf(const char* fields, int number) {
  for (int at = kState; at < number; ++at) {
    fields = std::strchr(fields, ' ');
    if (fields == nullptr) return 0;
    ++fields;
  }
  return std::strtoul(fields, nullptr, 10);
}

int SignalIn(int exit_code) {
  const int signal = WIFSIGNALED(exit_code) ? WTERMSIG(exit_code) : 0;
  return signal == SIGHUP || signal == SIGINT || signal == SIGTERM ? 0 : signal;
}

// As /proc tells it: nullopt: it is ending, and /proc does not tell how; 0 also if it is gone.
std::optional<int> SignalInProc(uint64_t process_id) {
  const std::string path = "/proc/" + std::to_string(process_id) + "/stat";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  std::array<char, 2048> text{};
  if (!file || std::fread(text.data(), 1, text.size() - 1, file.get()) == 0) return 0;
  const char* const name_end = std::strrchr(text.data(), ')');
  if (name_end == nullptr || std::strlen(name_end) < 3) return 0;
  const char* const fields = name_end + 2;
  if ((FieldOf(fields, kFlags) & kExiting) == 0) return 0;
  const unsigned long code = FieldOf(fields, kExitCode);  // 0 also if this process may not know it
  return code == 0 ? std::nullopt : std::optional(SignalIn(static_cast<int>(code)));
}

}  // namespace

std::optional<int> KilledBy(int pidfd, uint64_t process_id) {
  if (const auto code = ExitCodeOf(pidfd)) return SignalIn(*code);
  const auto signal = SignalInProc(process_id);
  if (signal != 0) return signal;
  // Its parent may have waited for it between the two looks.
  const auto code = ExitCodeOf(pidfd);
  return code ? SignalIn(*code) : 0;
}

}  // namespace arraybridge::daemon
