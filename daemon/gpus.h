// SPDX-License-Identifier: Apache-2.0
// Gpus are the GPUs that the daemon serves: those found on this host that memory.backend and memory.devices select.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/memory/cuda/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct Gpus {
  std::vector<std::shared_ptr<CudaGpu>> all;
  std::string why_none;  // why the list is empty
  RefusalCause why_none_cause = RefusalCause::kHardware;
  std::vector<FoundGpus::Broken> broken;  // of the selected GPUs

  std::string driver() const { return all.empty() ? "none" : all.front()->driver_version(); }
};

// Without any GPU it logs one line and succeeds, unless the configuration requires one. UNAVAILABLE: a required GPU is
// missing; the message says why, or names the device and the existing ones. Loads no driver if no GPU is selected.
Result<Gpus> FindGpus(const Config& config);

// One backend for each GPU and memory kind, in order of preference. Backends of refused kinds and of broken GPUs report
// the reason.
std::vector<std::unique_ptr<MemoryBackend>> BackendsOf(const Gpus& gpus, const GpuTable& terms);

}  // namespace arraybridge::daemon
