// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/tiers/tier_settings.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/quantity.h"
#include "daemon/config/value.h"

namespace arraybridge::daemon {
namespace {

Result<std::string> ReadDirectory(std::string_view text) {
  if (text == "off") return std::string();
  if (text.starts_with('/')) return std::string(text);
  return InvalidArgument("'", text, "' is neither an absolute path nor off");
}

// "90%", or off.
Result<uint32_t> ReadPart(std::string_view text) {
  if (text == "off") return 0;
  const auto read = ReadBytesOrPercent(text);
  const auto* percent = read.ok() ? std::get_if<Percent>(&*read) : nullptr;
  if (percent != nullptr && percent->value > 0) return percent->value;
  return InvalidArgument("'", text, "' is neither a percentage from 1% to 100% nor off");
}

template <uint32_t TierTerms::*kField>
std::string WrittenPart(const Config& config) {
  const uint32_t part = config.tiers.*kField;
  return part == 0 ? "off" : std::to_string(part) + "%";
}

Result<std::vector<std::string>> ReadNames(std::string_view text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (const std::string_view name : SplitList(text)) {
    if (name.empty())
      return InvalidArgument("'", text, "' has an empty name: names of namespaces, with commas between");
    names.emplace_back(name);
  }
  return names;
}

std::string WrittenDirectory(const Config& config) {
  return config.tiers.directory.empty() ? "off" : config.tiers.directory;
}

template <class T>
auto Of(T TierTerms::*field) {
  return [field](auto& config) -> auto& { return config.tiers.*field; };
}

}  // namespace

Status TierTerms::Check(std::string_view where) const {
  if (low <= high) return Ok();
  return InvalidArgument(where, "tiers.low (", low, "%) is more than tiers.high (",
                         high == 0 ? "off" : Concat(high, "%"), "): give a part below it");
}

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
      {"tiers.high", "", In(Of(&TierTerms::high), ReadPart, "off").ShownAs("90%", WrittenPart<&TierTerms::high>),
       "part of the host memory: more in use, and shares that no process reads move to files; or off (default: off)"},
      {"tiers.low", "", In(Of(&TierTerms::low), ReadPart, "off").ShownAs("85%", WrittenPart<&TierTerms::low>),
       "part of the host memory: they move until no more is in use; off = 5 % less than tiers.high (default: off)"},
      {"tiers.durable", "",
       In(Of(&TierTerms::durable), ReadNames, "")
           .ShownAs("models,prep", [](const Config& config) { return TextOf(config.tiers.durable); }),
       "namespaces whose named shares are kept in files, soon after their put, for the next broker"},
  };
}

}  // namespace arraybridge::daemon
