// SPDX-License-Identifier: Apache-2.0
#include "daemon/gpus.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/memory/broken_backend.h"
#include "daemon/memory/cuda/cuda_ipc_backend.h"
#include "daemon/memory/cuda/cuda_vmm_backend.h"
#include "daemon/service/telemetry/log.h"

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kCuda = "cuda:";

bool Says(const Config& config, const std::string& device) {
  return config.devices.front() == "all" || std::ranges::find(config.devices, device) != config.devices.end();
}

std::string ByUuid(const CudaGpu& gpu) { return Concat(kCuda, gpu.device().uuid); }
std::string ByOrdinal(const CudaGpu& gpu) { return Concat(kCuda, gpu.device().id); }

// Why the configuration selects no GPU; empty: it selects some.
std::string WhyUnused(const Config& config) {
  if (config.memory_backend == "host") return "only host memory is enabled (memory.backend)";
  const auto names_gpu = [](const std::string& device) { return device == "all" || device.starts_with(kCuda); };
  if (std::ranges::any_of(config.devices, names_gpu)) return {};
  return "only host memory is enabled (memory.devices)";
}

// UNAVAILABLE: there is no GPU; the message says why.
Result<FoundGpus> Look(const Config& config) {
  if (config.cuda_driver == "none") return Unavailable("GPUs are disabled (--cuda-driver none)");
  auto found = FindCudaGpus(config.cuda_driver == "auto" ? "" : config.cuda_driver, config.gpus);
  if (found.ok() && found->all.empty() && found->broken.empty()) return Unavailable("the driver reports none");
  return found;
}

std::string Reported(const FoundGpus::Broken& broken) {
  return Concat("GPU ", broken.device.id, " cannot be used: ", broken.why.message());
}

// Empty if no GPU is broken.
std::string Reported(const std::vector<FoundGpus::Broken>& broken) {
  std::string text;
  for (const auto& each : broken) text += Concat("; ", Reported(each));
  return text;
}

// The first configured device that is none of these GPUs; empty: all exist.
std::string MissingIn(const FoundGpus& found, const Config& config) {
  for (const std::string& device : config.devices) {
    const auto is_it = [&device](const auto& gpu) { return device == ByUuid(*gpu) || device == ByOrdinal(*gpu); };
    if (device.starts_with(kCuda) && std::ranges::none_of(found.all, is_it)) return device;
  }
  return {};
}

std::string Listed(const FoundGpus& found) {
  std::string list = "host";
  for (const auto& gpu : found.all) list += Concat(", ", ByUuid(*gpu), " (", ByOrdinal(*gpu), ")");
  return list;
}

Status NotThere(const std::string& device, const FoundGpus& found) {
  return Unavailable("there is no device ", device, "; the devices are: ", Listed(found), Reported(found.broken));
}

// Only a warning: one configuration file may be used on many hosts, and a broken GPU must not stop the service.
void WarnOfTablesWithoutGpu(const FoundGpus& found, const Config& config) {
  for (const auto& table : config.gpus.own) {
    const std::string& uuid = table.first;
    if (std::ranges::any_of(found.all, [&uuid](const auto& gpu) { return gpu->device().uuid == uuid; })) continue;
    log::Warn(log::Topic::kNoGpu, "[memory.\"{}\"]: there is no such GPU; the devices are: {}", uuid, Listed(found));
  }
}

Result<Gpus> None(const Config& config, const std::string& why) {
  if (config.memory_backend == "cuda")
    return Unavailable("memory.backend (--backend) is cuda, but there is no GPU: ", why);
  if (const std::string device = MissingIn({}, config); !device.empty()) {
    return Unavailable(NotThere(device, {}).message(), "; no GPU: ", why);
  }
  if (config.cuda_driver == "none") return Gpus{{}, why, RefusalCause::kConfiguration, {}};
  if (config.cuda_driver == "auto") {
    log::Info(log::Topic::kNoGpu, "no GPU: {}", why);
  } else {
    log::Warn(log::Topic::kNoGpu, "no GPU: {}", why);  // the configuration requires a driver
  }
  return Gpus{{}, why, RefusalCause::kHardware, {}};
}

// Configured devices must work: the daemon does not start without them.
std::vector<FoundGpus::Broken> BrokenOf(const FoundGpus& found, const Config& config) {
  return config.devices.front() == "all" ? found.broken : std::vector<FoundGpus::Broken>{};
}

}  // namespace

Result<Gpus> FindGpus(const Config& config) {
  if (std::string why = WhyUnused(config); !why.empty()) {
    return Gpus{{}, std::move(why), RefusalCause::kConfiguration, {}};
  }
  const auto found = Look(config);
  if (!found.ok()) return None(config, found.status().message());
  for (const auto& broken : found->broken) log::Warn(log::Topic::kNoGpu, "{}", Reported(broken));
  WarnOfTablesWithoutGpu(*found, config);
  if (const std::string device = MissingIn(*found, config); !device.empty()) return NotThere(device, *found);
  if (found->all.empty()) {
    auto none = None(config, Concat("the driver's GPUs cannot be used", Reported(found->broken)));
    if (!none.ok()) return none;
    none->why_none_cause = RefusalCause::kFailed;
    none->broken = BrokenOf(*found, config);
    return none;
  }
  Gpus served;
  served.broken = BrokenOf(*found, config);
  std::ranges::copy_if(found->all, std::back_inserter(served.all), [&config](const auto& gpu) {
    return Says(config, ByUuid(*gpu)) || Says(config, ByOrdinal(*gpu));
  });
  return served;
}

std::vector<std::unique_ptr<MemoryBackend>> BackendsOf(const Gpus& gpus, const GpuTable& terms) {
  constexpr std::array<HandleKind, 2> kAll = {HandleKind::kCudaVmm, HandleKind::kCudaIpc};
  std::vector<std::unique_ptr<MemoryBackend>> backends;
  for (const auto& gpu : gpus.all) {
    std::vector<HandleKind> kinds = terms.Of(gpu->device().uuid).kinds;
    std::ranges::copy_if(kAll, std::back_inserter(kinds),
                         [listed = kinds](HandleKind kind) { return std::ranges::find(listed, kind) == listed.end(); });
    for (const HandleKind kind : kinds) {
      backends.push_back(kind == HandleKind::kCudaVmm ? MakeCudaVmmBackend({gpu}) : MakeCudaIpcBackend({gpu}));
    }
  }
  std::vector<MemoryBackend::Refusal> broken;
  for (const auto& [device, why] : gpus.broken) {
    broken.push_back(
        {device, Concat("it could not be used when the broker started: ", why.message()), RefusalCause::kFailed});
  }
  for (const HandleKind kind : kAll) {
    if (!broken.empty()) backends.push_back(std::make_unique<BrokenBackend>(kind, broken));
  }
  return backends;
}

}  // namespace arraybridge::daemon
