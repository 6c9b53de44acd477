// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/cuda/device_nodes.h"

#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

namespace arraybridge::daemon {

std::vector<uint64_t> OpenDeviceNodes(const std::string& prefix) {
  std::set<uint64_t> numbers;
  std::error_code error;
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string path = std::filesystem::read_symlink(descriptor.path(), error).string();
    if (error || !path.starts_with(prefix)) continue;
    const std::string_view digits = std::string_view(path).substr(prefix.size());
    uint64_t number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (!digits.empty() && read.ec == std::errc() && read.ptr == digits.data() + digits.size()) numbers.insert(number);
  }
  return {numbers.begin(), numbers.end()};
}

}  // namespace arraybridge::daemon
