// SPDX-License-Identifier: Apache-2.0
// The devices of the configuration: the devices that the daemon serves (memory.devices), and how each GPU is shared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

inline constexpr std::string_view kGpuUuidForm = "GPU-00000000-0000-0000-0000-000000000000";
// "GPU-" or "MIG-" and 8-4-4-4-12 lower-case hexadecimal digits, as the driver and nvidia-smi print it.
bool IsGpuUuid(std::string_view text);

// "all", or a comma-separated list of host, cuda:UUID, cuda:N without duplicates.
Result<std::vector<std::string>> ReadDevices(std::string_view text);
// "cuda:N". The same N can mean different GPUs in different processes.
bool IsOrdinal(std::string_view device);

// "1%" to "100%".
Result<uint64_t> ReadCapacityPercent(std::string_view text);
// Kinds of handles, comma-separated, without duplicates.
Result<std::vector<HandleKind>> ReadGpuKinds(std::string_view text);

// Whether host memory is among the devices. REQUIRES: ReadDevices made them.
bool ServesHostMemory(const Config& config);

// INVALID_ARGUMENT: memory.backend leaves no device, or excludes a device of the list.
Status CheckDevices(const Config& config);

}  // namespace arraybridge::daemon
