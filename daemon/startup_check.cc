#include "daemon/startup_check.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

// The needs of an idle daemon, besides the standard descriptors and the main thread.
constexpr size_t kDescriptors = 20;
constexpr size_t kOwnThreads = 15;
// gRPC's pool has one thread per processor, within these bounds.
constexpr size_t kPoolMin = 4;
constexpr size_t kPoolMax = 16;

Status CheckDescriptors() {
  std::vector<UniqueFd> taken;
  while (taken.size() < kDescriptors) {
    taken.emplace_back(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (taken.back().valid()) continue;
    return ResourceExhausted("needs ", kDescriptors, " more descriptors to start and got ", taken.size() - 1, ": ",
                             std::strerror(errno), " (RLIMIT_NOFILE: ulimit -n, LimitNOFILE= of a unit)");
  }
  return Ok();
}

Status CheckThreads() {
  const size_t wanted = kOwnThreads + std::clamp<size_t>(std::thread::hardware_concurrency(), kPoolMin, kPoolMax);
  std::latch counted(1);
  std::vector<std::jthread> taken;
  Status status;
  try {
    while (taken.size() < wanted) taken.emplace_back([&counted] { counted.wait(); });
  } catch (const std::system_error& error) {
    status = ResourceExhausted(
        "needs ", wanted, " more threads to start and got ", taken.size(), ": ", error.code().message(),
        " (RLIMIT_NPROC: ulimit -u, LimitNPROC= of a unit; or the cgroup's pids.max, TasksMax=)");
  }
  counted.count_down();
  return status;
}

}  // namespace

Status CheckStartup() {
  AB_RETURN_IF_ERROR(CheckDescriptors());
  return CheckThreads();
}

}  // namespace arraybridge
