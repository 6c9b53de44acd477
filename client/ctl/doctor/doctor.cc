// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/doctor/doctor.h"

#include <sys/stat.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "client/ctl/connection.h"
#include "client/ctl/output/print.h"
#include "client/ctl/output/table.h"
#include "proto/boundary/environment.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

constexpr std::string_view kSystemDirectory = "/run/arraybridge";

// Quoted as one word of a shell.
std::string Quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char each : text) quoted += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return quoted + "'";
}

// The commands that help with the broker of an address.
struct Remedy {
  std::string start;  // the broker does not run
  std::string again;  // the broker runs, but only a restart mends it
  std::string freed;  // the broker runs, but does not answer
  std::string log;
};

Remedy RemedyOf(const std::string& address) {
  const std::string restart = "sudo systemctl restart arraybridged";
  const std::string journal = "sudo journalctl --unit arraybridged --lines 50";
  const std::filesystem::path socket(address);
  if (address.empty() || socket.parent_path() == kSystemDirectory) return {restart, restart, restart, journal};
  if (const std::string runtime = RuntimeDirectory();
      !runtime.empty() && socket.parent_path() == std::filesystem::path(runtime) / "arraybridge") {
    const std::string own = "systemctl --user restart arraybridged (or, without its units: arraybridged)";
    return {own, own, own, "journalctl --user --unit arraybridged --lines 50"};
  }
  const std::string directory = Quoted(socket.parent_path());
  std::string start = Concat("arraybridged --directory ", directory);
  if (socket.filename() != "broker.sock") start += Concat(" --listen ", Quoted("unix://" + address));
  return {start, Concat("arraybridgectl -H ", directory, " shutdown --now, then ", start),
          Concat("fuser --kill ", directory, "/lock, then ", start), Concat(start, " prints more on standard error")};
}

// A kind that the configuration excludes needs no documentation of hardware.
std::string MendOfKind(const v1::RefusedKind& refused, const Remedy& remedy) {
  if (refused.cause() != v1::REFUSAL_CAUSE_CONFIGURATION) return WhatToReadOfKinds();
  return Concat("list it in memory.cuda.kinds (man 5 arraybridged.toml), then ", remedy.again);
}

Finding OnDevice(const v1::DeviceInfo& device, const Remedy& remedy) {
  Finding finding{DeviceName(device.device()), Health::kOk, "", ""};
  finding.text = Concat("shared as ", device.kinds().empty() ? "nothing" : KindNames(device.kinds()), ", ",
                        HumanSize(device.allocated_bytes()), " of ", HumanSize(device.capacity_bytes()), " in use");
  if (device.quarantined_bytes() > 0) {
    finding.text +=
        Concat(", ", HumanSize(device.quarantined_bytes()), " of it in quarantine (a process may still map it)");
  }
  for (const v1::RefusedKind& refused : device.refused()) {
    if (refused.cause() == v1::REFUSAL_CAUSE_FAILED) continue;  // reported once, not for every kind
    finding.text += Concat("; not as ", KindName(refused.kind()), ": ", refused.why());
  }
  if (!device.refused().empty()) {
    finding.health = Health::kNote;
    finding.mend = MendOfKind(*device.refused().begin(), remedy);
  }
  if (device.kinds().empty()) {
    finding.health = Health::kProblem;
    if (finding.mend.empty()) finding.mend = remedy.log;
  }
  if (device.out_of_service()) {
    const std::string why = WhyOutOfService(device);
    finding.text += Concat("; out of service: ", why.empty() ? "the broker's log says why" : why);
    finding.health = Health::kProblem;
    finding.mend = remedy.again;
  }
  return finding;
}

constexpr char kOnePidNamespace[] =
    "not needed where cuda_vmm works; otherwise podman run --pid=container:BROKER, with the broker's container";

// Legacy handles can be opened only inside the PID namespace of the broker.
Finding PidNamespace(uint64_t of_broker) {
  struct stat here {};
  if (::stat("/proc/self/ns/pid", &here) != 0 || of_broker == 0) {
    return {"PID namespace", Health::kNote, "unknown: CUDA IPC handles are refused", kOnePidNamespace};
  }
  if (here.st_ino == of_broker) return {"PID namespace", Health::kOk, "the broker's", ""};
  return {"PID namespace", Health::kNote, "different from the broker's: CUDA IPC handles are refused, descriptors work",
          kOnePidNamespace};
}

Finding NoAnswer(const Status& why, const Remedy& remedy) {
  const auto mend = [&]() -> std::string {
    switch (why.code()) {
      case Code::kUnavailable:
        return remedy.start;
      case Code::kDeadlineExceeded:
        return remedy.freed;
      case Code::kPermissionDenied:
      case Code::kUnauthenticated:
        return "id; the group of the socket and of its directory may connect (ls -l)";
      case Code::kInvalidArgument:
        return "arraybridgectl -H /run/arraybridge doctor, or another valid address";
      default:
        return Concat("arraybridgectl version (both versions must be equal); ", remedy.log);
    }
  };
  return {"broker", Health::kProblem, why.message(), mend()};
}

// The broker is configured to serve no GPU, or could not; the rows of the driver say what this process could do.
Finding NoGpu(const std::string& why, v1::RefusalCause cause, const Remedy& remedy) {
  return {
      "GPUs", cause == v1::REFUSAL_CAUSE_FAILED ? Health::kProblem : Health::kNote, "none served: " + why,
      cause == v1::REFUSAL_CAUSE_CONFIGURATION
          ? Concat("change memory.backend, memory.devices or memory.cuda.driver (arraybridgectl config show), then ",
                   remedy.again)
          : Concat("nvidia-smi -L, as the broker's user; once it lists one: ", remedy.again)};
}

}  // namespace

std::string WhatToReadOfKinds() {
  return "no command: the hardware or the driver does not support it; the other kind works, see man 5 "
         "arraybridged.toml "
         "(memory.cuda.kinds)";
}

std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info, const std::string& address) {
  const Remedy remedy = RemedyOf(address);
  if (!info.ok()) return {NoAnswer(info.status(), remedy)};
  std::vector<Finding> findings;
  findings.push_back(
      {"broker", info->draining() ? Health::kProblem : Health::kOk,
       Concat(info->version(), info->draining() ? " is draining" : " serves", ", up ", HumanAge(info->uptime_ms())),
       info->draining() ? remedy.again : ""});
  findings.push_back(PidNamespace(info->pid_namespace()));
  for (const v1::DeviceInfo& device : info->devices()) findings.push_back(OnDevice(device, remedy));
  if (!info->no_gpu().empty()) {
    findings.push_back(NoGpu(info->no_gpu(), info->no_gpu_cause(), remedy));
  }
  for (Finding& finding : ExamineLife(*info)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace arraybridge::ctl
