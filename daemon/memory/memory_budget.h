// The memory budget is how many bytes of host memory the daemon may promise: a share of what its cgroup allows and the
// machine has to spare. More than that is not an error but a SIGKILL, so it is read and kept to beforehand.
#pragma once

#include <cstdint>
#include <filesystem>

namespace arraybridge {

// `percent` of min(MemAvailable, every limit of the process's cgroup and its ancestors, v1 and v2), read from the
// proc and sys directories under `root`. 0 if nothing of that can be read. REQUIRES: percent <= 100.
uint64_t MemoryBudget(const std::filesystem::path& root, uint32_t percent);

// Of this process on this machine.
uint64_t MemoryBudget(uint32_t percent = 50);

}  // namespace arraybridge
