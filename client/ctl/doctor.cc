#include "client/ctl/doctor.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "client/ctl/print.h"
#include "client/ctl/table.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

constexpr rlim_t kDescriptorsEnough = 4096;
constexpr const char* kSharedHugePages = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

// "always within_size [advise] never": what stands in brackets.
std::string Chosen(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  const auto open = line.find('[');
  const auto close = line.find(']');
  return open == std::string::npos || close < open ? "" : line.substr(open + 1, close - open - 1);
}

Finding HugePages() {
  const std::string chosen = Chosen(kSharedHugePages);
  if (chosen.empty()) return {"huge pages", Health::kNote, "this kernel has none for shared memory"};
  if (chosen != "never" && chosen != "deny") return {"huge pages", Health::kOk, "shared memory: " + chosen};
  if (chosen == "never") {
    return {
        "huge pages", Health::kOk,
        Concat(
            "shared memory: never, so a broker makes its own where it can (Linux 6.1); for every block: echo advise > ",
            kSharedHugePages)};
  }
  return {"huge pages", Health::kNote,
          Concat("shared memory: ", chosen, "; first puts cost less with: echo advise > ", kSharedHugePages)};
}

Finding Descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= kDescriptorsEnough;
  return {"descriptors", enough ? Health::kOk : Health::kNote,
          Concat("a process here may open ", limit.rlim_cur, ", at most ", limit.rlim_max,
                 enough ? "" : "; each arena that a client reads takes one")};
}

Finding DeviceNodes() {
  if (::access("/dev/nvidiactl", F_OK) != 0) {
    return {"device nodes", Health::kNote,
            "no /dev/nvidiactl: no NVIDIA driver here, or this container was not given it"};
  }
  if (::access("/dev/nvidiactl", R_OK | W_OK) == 0) return {"device nodes", Health::kOk, "/dev/nvidiactl may be used"};
  return {"device nodes", Health::kProblem, "/dev/nvidiactl may not be used by this user"};
}

Finding OnDevice(const v1::DeviceInfo& device) {
  Finding finding{DeviceName(device.device()), Health::kOk, ""};
  finding.text = Concat("shared as ", device.kinds().empty() ? "nothing" : KindNames(device.kinds()), ", ",
                        HumanSize(device.allocated_bytes()), " of ", HumanSize(device.capacity_bytes()), " in use");
  if (device.quarantined_bytes() > 0) {
    finding.text +=
        Concat(", ", HumanSize(device.quarantined_bytes()), " of it in quarantine (somebody may map it yet)");
  }
  for (const v1::RefusedKind& refused : device.refused()) {
    finding.text += Concat("; not as ", KindName(refused.kind()), ": ", refused.why());
  }
  if (!device.refused().empty()) finding.health = Health::kNote;
  if (device.out_of_service() || device.kinds().empty()) finding.health = Health::kProblem;
  return finding;
}

// Legacy handles are opened inside one PID namespace alone.
Finding PidNamespace(uint64_t of_broker) {
  struct stat here {};
  if (::stat("/proc/self/ns/pid", &here) != 0 || of_broker == 0) {
    return {"PID namespace", Health::kNote, "unknown: CUDA IPC handles are refused"};
  }
  if (here.st_ino == of_broker) return {"PID namespace", Health::kOk, "the broker's"};
  return {"PID namespace", Health::kNote, "another than the broker's: CUDA IPC handles are refused, descriptors work"};
}

}  // namespace

std::vector<Finding> ExamineHost() { return {HugePages(), Descriptors(), DeviceNodes()}; }

std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info) {
  if (!info.ok()) return {{"broker", Health::kProblem, info.status().message()}};
  std::vector<Finding> findings;
  findings.push_back(
      {"broker", info->draining() ? Health::kProblem : Health::kOk,
       Concat(info->version(), info->draining() ? " drains" : " serves", ", up ", HumanAge(info->uptime_ms()))});
  findings.push_back(PidNamespace(info->pid_namespace()));
  for (const v1::DeviceInfo& device : info->devices()) findings.push_back(OnDevice(device));
  if (!info->no_gpu().empty()) findings.push_back({"GPUs", Health::kNote, "none served: " + info->no_gpu()});
  return findings;
}

}  // namespace arraybridge::ctl
