// What is said of devices: which are served, by the words of memory.devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

inline constexpr std::string_view kGpuUuidForm = "GPU-00000000-0000-0000-0000-000000000000";
// "GPU-" or "MIG-" and 8-4-4-4-12 small hexadecimal digits, as the driver and nvidia-smi write it.
bool IsGpuUuid(std::string_view text);

// "all", or words with commas between them, each once: host, cuda:UUID, cuda:N.
Result<std::vector<std::string>> ReadDevices(std::string_view text);
// "cuda:N": what is GPU N in one process is another in the next.
bool IsOrdinal(std::string_view device);

// Whether host memory is among them. REQUIRES: they were read.
bool ServesHostMemory(const Config& config);

// What memory.backend leaves of them. INVALID_ARGUMENT: nothing, or not what is named.
Status CheckDevices(const Config& config);

}  // namespace arraybridge
