#include "daemon/config/sources.h"

#include <algorithm>
#include <cctype>

#include "daemon/config/devices.h"
#include "daemon/config/files/toml_file.h"
#include "daemon/config/settings.h"

extern char** environ;

namespace arraybridge {
namespace {

constexpr std::string_view kPrefix = "ARRAYBRIDGED_";

Status CheckTable(const TableKey& key) {
  const auto is_control = [](char letter) { return static_cast<unsigned char>(letter) < ' '; };
  if (key.of_namespace && (key.table.empty() || std::ranges::any_of(key.table, is_control))) {
    return InvalidArgument("a namespace cannot have this name");
  }
  if (key.of_namespace || IsGpuUuid(key.table)) return Ok();
  return InvalidArgument("'", key.table, "' is not the UUID of a GPU, such as ", kGpuUuidForm,
                         " (nvidia-smi -L lists them)");
}

Status ReadEntry(const ConfigEntry& entry, Reading& reading) {
  const auto split = SplitTableKey(entry.key);
  const Setting* const setting = FindSetting(split ? split->setting : entry.key);
  if (setting == nullptr || (split && !setting->value.has_tables)) {
    return InvalidArgument(entry.origin, ": ", entry.key, " is unknown");
  }
  if (entry.is_list && !setting->value.is_list) {
    return InvalidArgument(entry.origin, ": ", entry.key, " takes one value, not a list");
  }
  if (setting->sources == Setting::Sources::kFlagOnly) {
    return InvalidArgument(entry.origin, ": ", entry.key, " can only be set by a flag (--", setting->flag, ")");
  }
  const Status checked = split ? CheckTable(*split) : Ok();
  if (!checked.ok()) return InvalidArgument(entry.origin, ": ", checked.message());
  return reading.Take(*setting, entry.key, split ? split->table : "", entry.text, entry.origin);
}

Status ReadFile(const std::string& path, Reading& reading) {
  const auto entries = ReadConfigFile(path);
  if (!entries.ok()) return entries.status();
  for (const ConfigEntry& entry : *entries) AB_RETURN_IF_ERROR(ReadEntry(entry, reading));
  return Ok();
}

std::string VariableOf(const Setting& setting) {
  std::string name(kPrefix);
  for (const char letter : setting.key) {
    if (letter == '.') name += '_';
    name += letter == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

}  // namespace

Status Reading::Take(const Setting& setting, const std::string& key, const std::string& table, std::string_view text,
                     const std::string& origin) {
  const Status read = setting.value.read(text, table, draft);
  if (!read.ok()) return InvalidArgument(origin, ": ", read.message());
  said[key] = {std::string(text), origin, ++taken};
  return Ok();
}

const Said& Reading::Of(std::string_view key) const {
  static const Said nothing;
  const auto found = said.find(key);
  return found == said.end() ? nothing : found->second;
}

std::string Reading::Where(std::string_view key, const std::string& otherwise) const {
  const std::string& origin = Of(key).origin.empty() ? otherwise : Of(key).origin;
  return origin.empty() ? "" : origin + ": ";
}

Status ReadFiles(const std::string& named, bool embedded, Reading& reading) {
  if (named.empty() && embedded) return Ok();
  const std::string path = named.empty() ? kSystemConfigFile : named;
  const Status read = ReadFile(path, reading);
  if (read.code() == Code::kNotFound && named.empty()) return Ok();
  AB_RETURN_IF_ERROR(read);
  for (const std::string& drop_in : DropInsOf(path)) AB_RETURN_IF_ERROR(ReadFile(drop_in, reading));
  return Ok();
}

Status ReadEnvironment(Reading& reading) {
  std::map<std::string_view, std::string_view> texts;  // by variable
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = std::min(text.find('='), text.size());
    if (text.starts_with(kPrefix)) texts[text.substr(0, equals)] = text.substr(std::min(equals + 1, text.size()));
  }
  for (const Setting& setting : Settings()) {
    const std::string name = VariableOf(setting);
    const auto found = texts.find(name);
    if (found == texts.end() || setting.sources != Setting::Sources::kAll) continue;
    AB_RETURN_IF_ERROR(reading.Take(setting, setting.key, "", found->second, name));
    texts.erase(found);
  }
  if (texts.empty()) return Ok();
  return InvalidArgument("the environment variable ", texts.begin()->first, " is unknown");
}

Status ReadLimitFlag(std::string_view text, Reading& reading) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return InvalidArgument("--limit '", text, "' is not NAME=VALUE");
  const std::string name(text.substr(0, equals));
  const Setting* const setting = FindSetting("limits." + name);
  if (setting == nullptr) return InvalidArgument("--limit: '", name, "' is not a limit");
  return reading.Take(*setting, setting->key, "", text.substr(equals + 1), "--limit " + name);
}

}  // namespace arraybridge
