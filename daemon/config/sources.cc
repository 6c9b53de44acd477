#include "daemon/config/sources.h"

#include <algorithm>
#include <cctype>

#include "daemon/config/devices.h"

extern char** environ;

namespace arraybridge {
namespace {

constexpr std::string_view kPrefix = "ARRAYBRIDGED_";

Status NoList(const ConfigEntry& entry) {
  return InvalidArgument(entry.origin, ": ", entry.key, " is one value, no list");
}

Status ReadNamespaceEntry(const std::string& name, const std::string& leaf, const ConfigEntry& entry,
                          Reading& reading) {
  const NamespaceSetting* const setting = FindNamespaceSetting(leaf);
  if (setting == nullptr) return InvalidArgument(entry.origin, ": ", entry.key, " is unknown");
  if (entry.is_list && !setting->is_list) return NoList(entry);
  const bool is_control =
      std::ranges::any_of(name, [](char letter) { return static_cast<unsigned char>(letter) < ' '; });
  if (name.empty() || is_control) return InvalidArgument(entry.origin, ": this cannot be a namespace's name");
  return reading.TakeNamespace(name, *setting, entry);
}

Status ReadGpuEntry(const std::string& uuid, const std::string& leaf, const ConfigEntry& entry, Reading& reading) {
  const GpuSetting* const setting = FindGpuSetting(leaf);
  if (setting == nullptr) return InvalidArgument(entry.origin, ": ", entry.key, " is unknown");
  if (entry.is_list && !setting->is_list) return NoList(entry);
  if (!IsGpuUuid(uuid))
    return InvalidArgument(entry.origin, ": '", uuid, "' is no UUID of a GPU, as ", kGpuUuidForm,
                           " (nvidia-smi -L lists them)");
  return reading.TakeGpu(uuid, *setting, entry);
}

Status ReadFile(const std::string& path, Reading& reading) {
  const auto entries = ReadConfigFile(path);
  if (!entries.ok()) return entries.status();
  for (const ConfigEntry& entry : *entries) {
    if (const auto its = SplitNamespaceKey(entry.key)) {
      AB_RETURN_IF_ERROR(ReadNamespaceEntry(its->first, its->second, entry, reading));
      continue;
    }
    if (const auto its = SplitGpuKey(entry.key)) {
      AB_RETURN_IF_ERROR(ReadGpuEntry(its->first, its->second, entry, reading));
      continue;
    }
    const Setting* const setting = FindSetting(entry.key);
    if (setting == nullptr) return InvalidArgument(entry.origin, ": ", entry.key, " is unknown");
    if (entry.is_list && !setting->is_list) return NoList(entry);
    if (setting->sources == Setting::Sources::kFlagOnly) {
      return InvalidArgument(entry.origin, ": ", entry.key, " is a flag's to say (--", setting->flag, ")");
    }
    AB_RETURN_IF_ERROR(reading.Take(*setting, entry.text, entry.origin));
  }
  return Ok();
}

std::string VariableOf(const Setting& setting) {
  std::string name(kPrefix);
  for (const char letter : setting.key) {
    if (letter == '.') {
      name += "__";
    } else {
      name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
  }
  return name;
}

}  // namespace

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
  std::map<std::string, const Setting*, std::less<>> variables;
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kAll) variables.emplace(VariableOf(setting), &setting);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(kPrefix)) continue;
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name(text.substr(0, equals));
    const auto found = variables.find(name);
    if (found == variables.end()) return InvalidArgument("the environment variable ", name, " is unknown");
    AB_RETURN_IF_ERROR(reading.Take(*found->second, text.substr(std::min(equals + 1, text.size())), name));
  }
  return Ok();
}

Status ReadLimitFlag(std::string_view text, Reading& reading) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return InvalidArgument("--limit '", text, "' is not NAME=VALUE");
  const std::string name(text.substr(0, equals));
  const Setting* const setting = FindSetting("limits." + name);
  if (setting == nullptr) return InvalidArgument("--limit: '", name, "' is no limit");
  return reading.Take(*setting, text.substr(equals + 1), "--limit " + name);
}

}  // namespace arraybridge
