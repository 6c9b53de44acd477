// SPDX-License-Identifier: Apache-2.0
// Examines the GPUs that this process sees, without creating contexts or memory on them.
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/doctor/doctor.h"
#include "proto/boundary/cuda/driver.h"
#include "proto/boundary/cuda/driver_sharing.h"
#include "proto/boundary/cuda/driver_uuid.h"
#include "proto/boundary/one_memory/driver_reach.h"

namespace arraybridge::ctl {
namespace {

using cuda::Driver;

constexpr char kDriver[] = "CUDA driver";

// Why the driver cannot be used, and the remedy. A host without a GPU, or a container without one, has no problem.
Finding NoDriver(const Status& why) {
  struct Remedy {
    std::string_view reason;
    Health health;
    const char* mend;
  };
  constexpr Remedy kRemedies[] = {
      {"CUDA_LIBRARY_ABSENT", Health::kNote,
       "where there is an NVIDIA GPU: sudo apt-get install libcuda1; for a container: podman run --device "
       "nvidia.com/gpu=all, or docker run --gpus all"},
      {"CUDA_ERROR_NO_DEVICE", Health::kNote, "nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\" (it may hide them)"},
      {"CUDA_DRIVER_TOO_OLD", Health::kProblem, "sudo apt-get install nvidia-driver, a newer one, then sudo reboot"},
      {"CUDA_ERROR_STUB_LIBRARY", Health::kProblem,
       "env -u LD_LIBRARY_PATH arraybridgectl doctor; ldconfig -p | grep libcuda.so.1 shows which one is found"},
      {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Health::kProblem, "sudo reboot, after an update of the driver"},
  };
  for (const Remedy& remedy : kRemedies) {
    if (why.reason() == remedy.reason) return {kDriver, remedy.health, why.message(), remedy.mend};
  }
  return {kDriver, Health::kProblem, why.message(),
          "sudo dmesg | grep -i -e nvrm -e xid shows the errors of the kernel module"};
}

Finding OnGpu(const Driver& driver, int index, const cuda::Platform& platform) {
  const auto refused = [index](const Status& why) {
    return Finding{Concat("GPU ", index), Health::kProblem, why.message(), "nvidia-smi -q; sudo dmesg | grep -i xid"};
  };
  cuda::CUdevice device = 0;
  if (const Status got = driver.Check(driver.DeviceGet(&device, index), "cuDeviceGet"); !got.ok()) return refused(got);
  const auto uuid = cuda::UuidOf(driver, device);
  if (!uuid.ok()) return refused(uuid.status());
  const cuda::Refusals refusals = cuda::RefusalsOf(driver, device, platform);
  std::string can;
  std::string cannot;
  const auto tell = [&](const char* kind, const std::string& why) {
    if (why.empty()) can += Concat(can.empty() ? "" : ", ", kind);
    if (!why.empty()) cannot += Concat("; not as ", kind, ": ", why);
  };
  tell("cuda_vmm", refusals.vmm);
  tell("cuda_ipc", refusals.ipc);
  Finding finding{Concat("GPU ", index), Health::kOk, "", ""};
  finding.text = Concat(*uuid, " ", TextOf(cuda::ReachOf(driver, device)), ", can be shared as ",
                        can.empty() ? "nothing" : can, cannot);
  if (cannot.empty()) return finding;
  finding.health = can.empty() ? Health::kProblem : Health::kNote;
  finding.mend = WhatToReadOfKinds();
  return finding;
}

}  // namespace

std::vector<Finding> ExamineDriver(const std::string& which) {
  if (which == "none") return {};
  const auto driver = Driver::Load(which == "auto" ? "" : which);
  if (!driver.ok()) return {NoDriver(driver.status())};
  int count = 0;
  if (const Status counted = driver->Check(driver->DeviceGetCount(&count), "cuDeviceGetCount"); !counted.ok()) {
    return {NoDriver(counted)};
  }
  if (count == 0) return {NoDriver(Unavailable("it shows no GPU").Because("CUDA_ERROR_NO_DEVICE"))};
  std::vector<Finding> findings{
      {kDriver, Health::kOk,
       Concat("supports CUDA ", cuda::Dotted(driver->version), ", shows ", count, count == 1 ? " GPU" : " GPUs"), ""}};
  const cuda::Platform platform = cuda::Platform::Here();
  for (int index = 0; index < count; ++index) findings.push_back(OnGpu(*driver, index, platform));
  return findings;
}

}  // namespace arraybridge::ctl
