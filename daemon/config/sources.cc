// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/sources.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "daemon/config/devices.h"
#include "daemon/config/files/toml_file.h"
#include "daemon/config/removed.h"
#include "daemon/config/settings.h"
#include "proto/boundary/nearest.h"

extern char** environ;

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kPrefix = "ARRAYBRIDGED_";
constexpr char kFurtherError[] = "error";  // a key of a status's metadata

Status CheckTable(const TableKey& key) {
  const auto is_control = [](char letter) { return static_cast<unsigned char>(letter) < ' '; };
  if (key.of_namespace && (key.table.empty() || std::ranges::any_of(key.table, is_control))) {
    return InvalidArgument("a namespace cannot have this name");
  }
  if (key.of_namespace || IsGpuUuid(key.table)) return Ok();
  return InvalidArgument("'", key.table, "' is not the UUID of a GPU, such as ", kGpuUuidForm,
                         " (nvidia-smi -L lists them)");
}

std::string LeafOf(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// The keys of the files; in a table that the operator has named, those of such a table.
std::vector<std::string> KeysLike(const std::string& key) {
  const auto split = SplitTableKey(key);
  const std::string table = split ? key.substr(0, key.rfind('.') + 1) : "";
  std::vector<std::string> keys;
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kFlagOnly) continue;
    if (!split) keys.push_back(setting.key);
    const bool in_table = split && setting.value.has_tables &&
                          setting.key.starts_with(split->of_namespace ? "namespace.default." : "memory.cuda.");
    if (in_table) keys.push_back(table + LeafOf(setting.key));
  }
  return keys;
}

// The nearest key, or else the one key of this name in another section, as the end of a message.
std::string GuessAtKey(const std::string& key) {
  const std::vector<std::string> keys = KeysLike(key);
  std::string guess = Nearest(key, keys, EditsOf(LeafOf(key)));
  for (const std::string& each : guess.empty() ? keys : std::vector<std::string>()) {
    if (LeafOf(each) != LeafOf(key)) continue;
    if (!guess.empty()) return {};
    guess = each;
  }
  return guess.empty() ? "" : Concat(": did you mean ", guess, "?");
}

std::string GuessAt(const std::string& name, const std::vector<std::string>& names) {
  const std::string guess = Nearest(name, names, EditsOf(name));
  return guess.empty() ? "" : Concat(": did you mean ", guess, "?");
}

Status CheckEntry(const ConfigEntry& entry, const Setting* setting, const std::optional<TableKey>& split) {
  if (!entry.text) return InvalidArgument(entry.key, " is neither a text nor a number nor a boolean");
  if (setting == nullptr || (split && !setting->value.has_tables)) {
    if (const auto why = WhyRemoved(entry.key); !why.empty()) return InvalidArgument(entry.key, " ", why);
    return InvalidArgument(entry.key, " is unknown", GuessAtKey(entry.key));
  }
  if (entry.is_list && !setting->value.is_list)
    return InvalidArgument(entry.key, " takes one value, not a list", WhyRemovedFromList(*entry.text));
  if (setting->sources == Setting::Sources::kFlagOnly) {
    return InvalidArgument(entry.key, " can only be set by a flag (--", setting->flag, ")");
  }
  return split ? CheckTable(*split) : Ok();
}

void ReadEntry(const ConfigEntry& entry, Reading& reading) {
  const auto split = SplitTableKey(entry.key);
  const Setting* const setting = FindSetting(split ? split->setting : entry.key);
  const Status checked = CheckEntry(entry, setting, split);
  if (!checked.ok()) return reading.Refuse(entry.key, InvalidArgument(entry.origin, ": ", checked.message()));
  reading.Take(*setting, entry.key, split ? split->table : "", *entry.text, entry.origin);
}

constexpr char kEveryKey[] = "";

void ReadFile(const std::string& path, bool must_exist, Reading& reading) {
  const auto entries = ReadConfigFile(path);
  if (!entries.ok()) {
    if (must_exist || entries.status().code() != Code::kNotFound) reading.Refuse(kEveryKey, entries.status());
    return;
  }
  for (const ConfigEntry& entry : *entries) ReadEntry(entry, reading);
}

std::string VariableOf(const Setting& setting) {
  std::string name(kPrefix);
  for (const char letter : setting.key) {
    if (letter == '.') name += '_';
    name += letter == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

// The inverse of VariableOf.
std::string KeyOf(std::string_view variable) {
  std::string key;
  for (const char letter : variable.substr(kPrefix.size())) {
    const bool is_dot = letter == '_' && key.ends_with('_');
    if (is_dot) key.pop_back();
    key += is_dot ? '.' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return key;
}

}  // namespace

void Reading::Take(const Setting& setting, const std::string& key, const std::string& table, std::string_view text,
                   const std::string& origin) {
  const Status read = setting.value.read(text, table, draft);
  if (!read.ok()) return Refuse(key, InvalidArgument(origin, ": ", read.message()));
  given[key] = {std::string(text), origin, ++taken};
}

void Reading::Refuse(const std::string& key, Status error) {
  doubtful.push_back(key);
  errors.push_back(std::move(error));
}

bool Reading::Doubts(std::string_view key) const {
  return std::ranges::any_of(doubtful,
                             [&](std::string_view each) { return each.starts_with(key) || key.starts_with(each); });
}

Status Reading::Refused() const {
  Status first = errors.empty() ? Ok() : errors.front();
  for (size_t i = 1; i < errors.size(); ++i) first = std::move(first).With(kFurtherError, errors[i].message());
  return first;
}

std::vector<std::string> AllErrors(const Status& refused) {
  std::vector<std::string> all = {refused.message()};
  for (const auto& [key, value] : refused.metadata()) {
    if (key == kFurtherError) all.push_back(value);
  }
  return all;
}

const Given& Reading::Of(std::string_view key) const {
  static const Given nothing;
  const auto found = given.find(key);
  return found == given.end() ? nothing : found->second;
}

std::string Reading::Where(std::string_view key, const std::string& otherwise) const {
  const std::string& origin = Of(key).origin.empty() ? otherwise : Of(key).origin;
  return origin.empty() ? "" : origin + ": ";
}

void ReadFiles(const std::string& named, bool embedded, Reading& reading) {
  if (named.empty() && embedded) return;
  const std::string path = named.empty() ? kSystemConfigFile : named;
  ReadFile(path, !named.empty(), reading);
  for (const std::string& drop_in : DropInsOf(path)) ReadFile(drop_in, true, reading);
}

void ReadEnvironment(Reading& reading) {
  std::map<std::string, std::string> texts;  // by variable
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = std::min(text.find('='), text.size());
    if (!text.starts_with(kPrefix)) continue;
    texts[std::string(text.substr(0, equals))] = text.substr(std::min(equals + 1, text.size()));
  }
  std::vector<std::string> names;
  for (const Setting& setting : Settings()) {
    if (setting.sources != Setting::Sources::kAll) continue;
    names.push_back(VariableOf(setting));
    const auto found = texts.find(names.back());
    if (found == texts.end()) continue;
    reading.Take(setting, setting.key, "", found->second, names.back());
    texts.erase(found);
  }
  for (const auto& [name, text] : texts) {
    const std::string_view why = WhyRemoved(KeyOf(name));
    if (!why.empty()) reading.Refuse(name, InvalidArgument(name, " ", why));
    if (why.empty())
      reading.Refuse(name, InvalidArgument("the environment variable ", name, " is unknown", GuessAt(name, names)));
  }
}

void ReadLimitFlag(std::string_view text, Reading& reading) {
  constexpr std::string_view kLimits = "limits.";
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return reading.Refuse(std::string(kLimits), InvalidArgument("--limit '", text, "' is not NAME=VALUE"));
  }
  const std::string name(text.substr(0, equals));
  const std::string key = Concat(kLimits, name);
  if (const Setting* const setting = FindSetting(key); setting != nullptr) {
    return reading.Take(*setting, key, "", text.substr(equals + 1), "--limit " + name);
  }
  if (const auto why = WhyRemoved(key); !why.empty()) {
    return reading.Refuse(key, InvalidArgument("--limit ", name, " ", why));
  }
  std::vector<std::string> names;
  for (const Setting& each : Settings()) {
    if (each.key.starts_with(kLimits)) names.push_back(each.key.substr(kLimits.size()));
  }
  reading.Refuse(key, InvalidArgument("--limit: '", name, "' is not a limit", GuessAt(name, names)));
}

}  // namespace arraybridge::daemon
