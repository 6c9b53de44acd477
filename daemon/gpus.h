// Gpus are those that the daemon serves, of those that there are: what memory.backend and memory.devices come to where
// it runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/memory/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct Gpus {
  std::vector<std::shared_ptr<CudaGpu>> all;
  std::string why_none;  // of an empty list
  RefusalCause why_none_cause = RefusalCause::kHardware;
  std::vector<FoundGpus::Broken> broken;  // of those that are to be served

  std::string driver() const { return all.empty() ? "none" : all.front()->driver_version(); }
};

// That there is none is no error, and one line in the log, unless some are asked for: then UNAVAILABLE says why there
// is none, or names the device that is not there and those that are. Loads no driver where no GPU is to be served.
Result<Gpus> FindGpus(const Config& config);

// For every GPU one backend of each kind, the preferred first. Those of kinds that are refused, and of GPUs that are
// broken, say why.
std::vector<std::unique_ptr<MemoryBackend>> BackendsOf(const Gpus& gpus, const GpuTable& terms);

}  // namespace arraybridge
