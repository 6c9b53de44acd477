// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/tiers/tier_settings.h"

#include <string>
#include <string_view>

#include "daemon/config/quantity.h"
#include "daemon/config/value.h"

namespace arraybridge::daemon {
namespace {

Result<std::string> ReadDirectory(std::string_view text) {
  if (text == "off") return std::string();
  if (text.starts_with('/')) return std::string(text);
  return InvalidArgument("'", text, "' is neither an absolute path nor off");
}

std::string WrittenDirectory(const Config& config) {
  return config.tiers.directory.empty() ? "off" : config.tiers.directory;
}

template <class T>
auto Of(T TierTerms::*field) {
  return [field](auto& config) -> auto& { return config.tiers.*field; };
}

}  // namespace

std::vector<Setting> TierSettings() {
  return {
      {"tiers.directory", "",
       In(Of(&TierTerms::directory), ReadDirectory, "").ShownAs("/var/lib/arraybridge", WrittenDirectory),
       "directory for the bytes of shares that are moved out of memory, or off (default: off)",
       "The daemon makes the directory, with mode 0700, and is the only one that uses it. Files that it has not "
       "written "
       "are left alone."},
      {"tiers.disk_max", "", In(Of(&TierTerms::disk_max), ReadBytes, "64GiB"), "bytes of all files in that directory"},
      {"tiers.disk_max_per_user", "", In(Of(&TierTerms::disk_max_per_user), ReadBytes),
       "bytes of the files of one user; 0 = tiers.disk_max"},
  };
}

}  // namespace arraybridge::daemon
