// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/print.h"

#include <algorithm>
#include <cctype>

#include "daemon/config/settings.h"

namespace arraybridge::daemon {
namespace {

constexpr char kExampleHead[] =
    R"(# All settings of arraybridged with their defaults. Copy this file to /etc/arraybridge/arraybridged.toml and
# change the settings that you need. The daemon then reads conf.d/*.toml beside it, in the order of their names; the
# environment (ARRAYBRIDGED_MEMORY__HOST__CACHE=1GiB) and flags override the files. Sizes: 64KiB, 2MiB, 8GiB, 50%;
# times: 500ms, 30s, 5m, 1h. SIGHUP (`systemctl reload arraybridged`) reads everything again: docs/guides/operations.md
# lists what a reload changes.
# `arraybridged --config FILE --check-config` checks a file, `--print-config` shows the values in force.
# A setting that is commented out has no fixed default: its default depends on other settings, or there is none.
)";

constexpr char kExampleTables[] = R"(
# [memory.cuda] applies to all GPUs; a table with a UUID (nvidia-smi -L) applies to one GPU.
# [memory."GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00"]
# capacity = "50%"
# kinds = ["cuda_vmm"]

# [namespace.default] applies to all namespaces; a table with a name applies to one. With `access` several users
# share the namespace; without it each user has a namespace of this name. Entries: uid:N, gid:N, @group, a user's
# name, anyone and token:FILE. An entry that ends in ":ro" may only read.
# [namespace.images]
# quota = "4GiB"
# access = ["uid:1000", "gid:100", "@video", "token:/etc/arraybridge/tokens/viewer:ro"]
)";

// TOML quotes a text that is neither a number nor a boolean.
std::string Quoted(std::string_view text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (number || text == "true" || text == "false") return std::string(text);
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + '"';
}

// The default of a setting, or its example if it has no fixed default.
std::string Usual(const Value& value) {
  const std::string& text = value.fallback.empty() ? value.example : value.fallback;
  if (!value.is_list) return Quoted(text);
  std::string list;
  for (const std::string_view entry : SplitList(text)) list += (list.empty() ? "" : ", ") + Quoted(entry);
  return "[" + list + "]";
}

std::string Line(std::string text, std::string_view comment) {
  constexpr size_t kCommentColumn = 48;
  text.resize(std::max(text.size() + 1, kCommentColumn), ' ');
  return text + "# " + std::string(comment) + "\n";
}

// Splits "memory.host.cache" into the name of its table, which may be empty, and its own name.
std::pair<std::string, std::string> TableAndName(const std::string& key) {
  const size_t dot = key.rfind('.');
  if (dot == std::string::npos) return {"", key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

std::string Sentence(std::string_view text) {
  std::string sentence(text);
  sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  return sentence + ".";
}

// `heading` comes before each table; `row` prints one setting.
template <class Row>
std::string Reference(std::string_view heading, Row row) {
  std::string out;
  std::string section;
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kFlagOnly) continue;
    const auto [table, name] = TableAndName(setting.key);
    if (table != section) out += Concat(heading, "[", table, "]\n");
    section = table;
    out += row(setting, name);
  }
  return out;
}

}  // namespace

std::vector<ConfigValue> ValuesOf(const Config& config, const GivenByKey& given) {
  std::vector<ConfigValue> values;
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kFlagOnly) continue;
    const auto found = given.find(setting.key);
    const bool is_default = found == given.end();
    std::string text = is_default ? setting.value.fallback : found->second.text;
    if (setting.value.show) text = setting.value.show(config);
    values.push_back({setting.key, std::move(text), is_default ? "default" : found->second.origin});
  }
  for (const auto& [key, its] : given) {
    if (SplitTableKey(key)) values.push_back({key, its.text, its.origin});
  }
  return values;
}

std::string PrintedValues(const std::vector<ConfigValue>& values) {
  std::string out;
  std::string section;
  for (const ConfigValue& value : values) {
    auto [table, name] = TableAndName(value.key);
    if (const auto split = SplitTableKey(value.key)) {
      table = (split->of_namespace ? "namespace." : "memory.") + Quoted(split->table);
    }
    if (table != section) out += "\n[" + table + "]\n";
    section = table;
    out += Line(name + " = " + Quoted(value.text), value.origin);
  }
  return out;
}

std::string ExampleFile() {
  const auto row = [](const Setting& setting, const std::string& name) {
    return Line((setting.value.show ? "# " : "") + name + " = " + Usual(setting.value), setting.help);
  };
  return kExampleHead + Reference("\n", row) + kExampleTables;
}

std::string ManualKeys() {
  const auto row = [](const Setting& setting, const std::string& name) {
    std::string text = "\n*" + name + "*\n\t" + Sentence(setting.help);
    if (!setting.more.empty()) text += " " + setting.more;
    if (!setting.value.range.empty()) text += " Range: " + setting.value.range + ".";
    if (!setting.value.show) text += " Default: *" + Usual(setting.value) + "*.";
    return text + (setting.value.reloads ? " A reload changes it.\n" : "\n");
  };
  return Reference("\n## ", row);
}

}  // namespace arraybridge::daemon
