// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/admin/config.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "client/ctl/child.h"

namespace arraybridge::ctl {
namespace {

constexpr char kDaemon[] = "arraybridged";

// Returns a path, or a bare name for $PATH.
std::string FindDaemon() {
  std::error_code failed;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", failed).replace_filename(kDaemon);
  return !failed && ::access(beside.c_str(), X_OK) == 0 ? beside.string() : kDaemon;
}

}  // namespace

Status CheckConfig(const std::string& file) {
  std::vector<std::string> words = {FindDaemon(), "--check-config"};
  if (!file.empty()) words.insert(words.end(), {"--config", file});
  const auto ended = RunChild(std::move(words));
  if (ended.status().code() == Code::kNotFound) {
    return NotFound("cannot check the configuration: there is no ", kDaemon, " beside this program or in $PATH");
  }
  if (!ended.ok()) return ended.status();
  if (*ended != 0) return FailedPrecondition("a broker does not start with this configuration");
  return Ok();
}

}  // namespace arraybridge::ctl
