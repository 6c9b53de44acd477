// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace arraybridge::daemon {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = UINT64_MAX;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

// "max" and a missing or unreadable file mean that there is no limit.
uint64_t LimitIn(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return ParseNumber(word).value_or(kNoLimit);
}

// The smallest limit from `mount`/`group` up to the mount itself. In a container without a cgroup namespace the lower
// directories do not exist; the mount's own file then holds the container's limit.
uint64_t LeastLimit(const fs::path& mount, std::string_view group, const char* name) {
  uint64_t least = LimitIn(mount / name);
  fs::path directory = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    if (part == "..") break;
    directory /= part;
    least = std::min(least, LimitIn(directory / name));
  }
  return least;
}

bool NamesMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "memory") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// Lines of /proc/self/cgroup: "hierarchy:controllers:group"; version 2 has no controllers.
uint64_t CgroupLimit(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  uint64_t least = kNoLimit;
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string_view group = std::string_view(line).substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, LeastLimit(mount, group, "memory.max"));
      least = std::min(least, LeastLimit(mount / "unified", group, "memory.max"));
    }
    if (NamesMemory(controllers)) least = std::min(least, LeastLimit(mount / "memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

uint64_t AvailableBytes(const fs::path& root) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kKey = "MemAvailable:";
    if (!line.starts_with(kKey)) continue;
    std::string_view rest = std::string_view(line).substr(kKey.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const auto kib = ParseNumber(rest);
    if (kib.has_value() && *kib <= kNoLimit / 1024) return *kib * 1024;
  }
  return kNoLimit;
}

}  // namespace

uint64_t MemoryBudget(const fs::path& root, uint32_t percent) {
  const uint64_t bytes = std::min(CgroupLimit(root), AvailableBytes(root));
  if (bytes == kNoLimit) return 0;
  return bytes / 100 * percent + bytes % 100 * percent / 100;
}

uint64_t MemoryBudget(uint32_t percent) { return MemoryBudget("/", percent); }

}  // namespace arraybridge::daemon
