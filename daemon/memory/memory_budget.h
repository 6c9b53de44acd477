// SPDX-License-Identifier: Apache-2.0
// The memory budget is the number of bytes of host memory that the daemon may hand out. It is a percentage of what its
// cgroup allows and of what is available on the machine. The kernel answers an excess with SIGKILL instead of an error,
// so the daemon computes the budget when it starts and stays within it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace arraybridge::daemon {

// `percent` of the minimum of MemAvailable and all limits of the process's cgroup and its ancestors (v1 and v2), read
// from the directories proc and sys under `root`. 0 if none of these can be read. REQUIRES: percent <= 100.
uint64_t MemoryBudget(const std::filesystem::path& root, uint32_t percent);

// The budget of this process on this machine.
uint64_t MemoryBudget(uint32_t percent = 50);

}  // namespace arraybridge::daemon
