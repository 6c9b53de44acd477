// SPDX-License-Identifier: Apache-2.0
#include "daemon/startup_check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "daemon/memory/host/memfd.h"
#include "proto/boundary/explained_error.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

// The needs of an idle daemon, besides the standard descriptors and the main thread.
constexpr size_t kDescriptors = 20;
constexpr size_t kOwnThreads = 15;
// gRPC's pool has one thread per processor, within these bounds.
constexpr size_t kPoolMin = 4;
constexpr size_t kPoolMax = 16;

constexpr size_t kAddressSpace = 128 << 20;

// The limit that can keep threads from their stacks, if there is one.
std::string AddressSpace() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return Concat("; or RLIMIT_AS, which is ", limit.rlim_cur, " bytes: ulimit -v, LimitAS=");
}

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
        " (RLIMIT_NPROC: ulimit -u, LimitNPROC= of a unit; or the cgroup's pids.max, TasksMax=", AddressSpace(), ")");
  }
  // With these threads: their stacks take most of it.
  void* const room = ::mmap(nullptr, kAddressSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    ::munmap(room, kAddressSpace);
  } else if (status.ok()) {
    status = ResourceExhausted("needs ", kAddressSpace,
                               " more bytes of address space to start: ", ExplainedError(errno, "the broker"));
  }
  counted.count_down();
  return status;
}

}  // namespace

Status CheckStartup() {
  AB_RETURN_IF_ERROR(CheckDescriptors());
  AB_RETURN_IF_ERROR(CheckMemfds());
  return CheckThreads();
}

}  // namespace arraybridge::daemon
