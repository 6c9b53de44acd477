// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/files/toml_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "daemon/config/files/setting_file.h"

namespace arraybridge::daemon {
namespace {

std::string At(const std::string& path, const toml::source_region& source) {
  return Concat(path, ":", source.begin.line, ":", source.begin.column);
}

Result<std::string> ReadAll(const std::string& path) {
  const UniqueFd file = OpenSettingFile(path);
  if (!file.valid() && errno == ENOENT) return NotFound(path, ": no such file");
  if (!file.valid()) return PermissionDenied(path, ": ", std::strerror(errno));
  // The file can name a library that the daemon loads, so other users must not be able to write it.
  return ReadSettingFile(file, path, S_IWOTH, "other users may write it (chmod o-w)");
}

std::optional<std::string> NodeText(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
  if (const auto truth = node.value_exact<bool>()) return *truth ? "true" : "false";
  const toml::array* const list = node.as_array();
  if (list != nullptr && list->size() == 1) return NodeText(*list->get(0));
  return std::nullopt;
}

// A list is stored with commas between its entries, so no entry may contain a comma.
std::optional<std::string> TextOfSeveral(const toml::node& node) {
  const toml::array* const list = node.as_array();
  if (list == nullptr || list->size() == 1) return std::nullopt;
  std::string all;
  for (const toml::node& each : *list) {
    const auto text = each.as_array() != nullptr ? std::nullopt : NodeText(each);
    if (!text || text->find(',') != std::string::npos) return std::nullopt;
    all += (all.empty() ? "" : ",") + *text;
  }
  return all;
}

using Position = std::pair<toml::source_index, toml::source_index>;  // line and column
using Placed = std::vector<std::pair<Position, ConfigEntry>>;

void Gather(const std::string& path, const toml::table& table, const std::string& prefix, Placed* entries) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* const inner = node.as_table()) {
      Gather(path, *inner, key + ".", entries);
      continue;
    }
    auto several = TextOfSeveral(node);
    const bool is_list = several.has_value();
    auto text = is_list ? std::move(several) : NodeText(node);
    const auto& begin = name.source().begin;
    entries->push_back({{begin.line, begin.column}, {key, std::move(text), At(path, name.source()), is_list}});
  }
}

}  // namespace

Result<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  AB_ASSIGN_OR_RETURN(auto text, ReadAll(path));
  const toml::parse_result parsed = toml::parse(text, path);
  if (parsed.failed()) {
    return InvalidArgument(At(path, parsed.error().source()), ": ", parsed.error().description());
  }
  Placed placed;
  Gather(path, parsed.table(), "", &placed);
  std::ranges::stable_sort(placed, {}, &Placed::value_type::first);  // a table of TOML is sorted by its keys
  std::vector<ConfigEntry> entries;
  entries.reserve(placed.size());
  for (auto& [position, entry] : placed) entries.push_back(std::move(entry));
  return entries;
}

std::vector<std::string> DropInsOf(const std::string& path) {
  std::vector<std::string> found;
  std::error_code failed;
  const auto directory = std::filesystem::path(path).parent_path() / "conf.d";
  for (std::filesystem::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() == ".toml") found.push_back(entry->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace arraybridge::daemon
