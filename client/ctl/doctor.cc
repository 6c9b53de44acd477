#include "client/ctl/doctor.h"

#include <sys/stat.h>

#include "client/ctl/print.h"
#include "client/ctl/table.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

// Of a broker that will not come back to what it should be by itself; where systemd does not run it, as it was started.
constexpr char kRestart[] = "sudo systemctl restart arraybridged";

Finding OnDevice(const v1::DeviceInfo& device) {
  Finding finding{DeviceName(device.device()), Health::kOk, "", ""};
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
  if (device.out_of_service()) finding.mend = kRestart;
  return finding;
}

// Legacy handles are opened inside one PID namespace alone.
Finding PidNamespace(uint64_t of_broker) {
  struct stat here {};
  if (::stat("/proc/self/ns/pid", &here) != 0 || of_broker == 0) {
    return {"PID namespace", Health::kNote, "unknown: CUDA IPC handles are refused", ""};
  }
  if (here.st_ino == of_broker) return {"PID namespace", Health::kOk, "the broker's", ""};
  return {"PID namespace", Health::kNote, "another than the broker's: CUDA IPC handles are refused, descriptors work",
          ""};
}

}  // namespace

std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info) {
  if (!info.ok()) {
    const bool silent = info.status().code() == Code::kUnavailable || info.status().code() == Code::kDeadlineExceeded;
    return {{"broker", Health::kProblem, info.status().message(), silent ? kRestart : ""}};
  }
  std::vector<Finding> findings;
  findings.push_back(
      {"broker", info->draining() ? Health::kProblem : Health::kOk,
       Concat(info->version(), info->draining() ? " drains" : " serves", ", up ", HumanAge(info->uptime_ms())),
       info->draining() ? kRestart : ""});
  findings.push_back(PidNamespace(info->pid_namespace()));
  for (const v1::DeviceInfo& device : info->devices()) findings.push_back(OnDevice(device));
  if (!info->no_gpu().empty()) findings.push_back({"GPUs", Health::kNote, "none served: " + info->no_gpu(), ""});
  return findings;
}

}  // namespace arraybridge::ctl
