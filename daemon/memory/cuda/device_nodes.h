// SPDX-License-Identifier: Apache-2.0
// The device nodes of the GPUs that this process uses. While any process has such a node open, the driver keeps the GPU
// initialised, and so the memory on it. The store therefore keeps one between two daemons.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace arraybridge::daemon {

inline constexpr char kDeviceNodes[] = "/dev/nvidia";

// The numbers of the nodes that the driver has opened in this process: the files whose path is `prefix` and a number.
std::vector<uint64_t> OpenDeviceNodes(const std::string& prefix = kDeviceNodes);

}  // namespace arraybridge::daemon
