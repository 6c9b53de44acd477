#include "daemon/room_to_start.h"

#include <fcntl.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

// What an idle daemon has, and a few more: clients come at once.
constexpr size_t kDescriptors = 40;
constexpr size_t kThreads = 24;

Status CheckDescriptors() {
  std::vector<UniqueFd> taken;
  while (taken.size() < kDescriptors) {
    taken.emplace_back(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (taken.back().valid()) continue;
    return ResourceExhausted("needs ", kDescriptors, " descriptors to start and gets ", taken.size() - 1, ": ",
                             std::strerror(errno), " (RLIMIT_NOFILE: ulimit -n, LimitNOFILE= of a unit)");
  }
  return Ok();
}

Status CheckThreads() {
  std::mutex mutex;
  std::condition_variable ended;
  bool end = false;
  std::vector<std::thread> taken;
  Status status;
  try {
    while (taken.size() < kThreads) {
      taken.emplace_back([&] {
        std::unique_lock lock(mutex);
        ended.wait(lock, [&] { return end; });
      });
    }
  } catch (const std::system_error& error) {
    status =
        ResourceExhausted("needs ", kThreads, " threads to start and gets ", taken.size(), ": ", error.code().message(),
                          " (RLIMIT_NPROC: ulimit -u, LimitNPROC= of a unit; or the cgroup's pids.max, TasksMax=)");
  }
  {
    const std::lock_guard lock(mutex);
    end = true;
  }
  ended.notify_all();
  for (std::thread& thread : taken) thread.join();
  return status;
}

}  // namespace

Status CheckRoomToStart() {
  AB_RETURN_IF_ERROR(CheckDescriptors());
  return CheckThreads();
}

}  // namespace arraybridge
