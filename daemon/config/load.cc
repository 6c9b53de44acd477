// Flags over environment over conf.d over the file over defaults.
#include "daemon/config/config.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/config/resolve.h"
#include "daemon/config/sources.h"

namespace arraybridge {
namespace {

// TOML: what is no number and no boolean is quoted.
std::string Quoted(const std::string& text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (number || text == "true" || text == "false") return text;
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + '"';
}

// As a file.
std::string Printed(const std::vector<ConfigValue>& values) {
  constexpr size_t kOriginColumn = 48;
  std::string out;
  std::string section;
  for (const ConfigValue& value : values) {
    const size_t dot = value.key.rfind('.');
    std::string its = dot == std::string::npos ? "" : value.key.substr(0, dot);
    if (const auto split = SplitNamespaceKey(value.key)) its = "namespace." + Quoted(split->first);
    if (const auto split = SplitGpuKey(value.key)) its = "memory." + Quoted(split->first);
    if (its != section) out += "\n[" + its + "]\n";
    section = its;
    std::string line = value.key.substr(its.empty() ? 0 : dot + 1) + " = " + Quoted(value.text);
    line.resize(std::max(line.size() + 1, kOriginColumn), ' ');
    out += line + "# " + value.origin + "\n";
  }
  return out;
}

// What the command line says, before any of it is believed.
struct CommandLine {
  std::map<std::string, std::string> given;  // flag -> text
  std::vector<std::string> limits;
  std::string file;
  bool print = false;
};

void Declare(CLI::App& app, CommandLine& line, ConfigRequest& request) {
  for (const Setting& setting : Settings()) {
    if (setting.flag.empty()) continue;
    if (setting.is_switch) {
      // --flag=false takes back what a file says.
      const auto say = [&line, flag = setting.flag](int64_t said) { line.given[flag] = said > 0 ? "true" : "false"; };
      app.add_flag_function("--" + setting.flag, say, setting.help);
      continue;
    }
    if (setting.is_list) {
      const auto join = [&line, flag = setting.flag](const std::vector<std::string>& texts) {
        std::string& all = line.given[flag];
        for (const std::string& text : texts) all += (all.empty() ? "" : ",") + text;
      };
      app.add_option_function<std::vector<std::string>>("--" + setting.flag, join, setting.help)
          ->allow_extra_args(false);
      continue;
    }
    app.add_option_function<std::string>(
        "--" + setting.flag, [&line, flag = setting.flag](const std::string& text) { line.given[flag] = text; },
        setting.help);
  }
  app.add_option("--limit", line.limits, "NAME=VALUE: one of the named limits; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--config", line.file,
                 std::string("the configuration file (default: ") + kSystemConfigFile +
                     ", if it is there); then conf.d/*.toml beside it");
  app.add_flag("--version", request.print_version, "print the version and exit");
  app.add_flag("--check-config", request.check_only, "check the configuration and exit");
  app.add_flag("--print-config", line.print, "print what holds, as a file, with the origin of every value, and exit");
}

Status ReadAll(const CommandLine& line, Reading& reading) {
  const auto embedded = line.given.find("embedded");
  AB_RETURN_IF_ERROR(ReadFiles(line.file, embedded != line.given.end() && embedded->second == "true", reading));
  AB_RETURN_IF_ERROR(ReadEnvironment(reading));
  for (const Setting& setting : Settings()) {
    const auto found = line.given.find(setting.flag);
    if (found == line.given.end()) continue;
    AB_RETURN_IF_ERROR(reading.Take(setting, found->second, "--" + setting.flag));
  }
  for (const std::string& limit : line.limits) AB_RETURN_IF_ERROR(ReadLimitFlag(limit, reading));
  return Ok();
}

}  // namespace

Result<ConfigRequest> LoadConfig(int argc, const char* const* argv) {
  ConfigRequest request;
  CommandLine line;
  CLI::App app("arraybridged: shares arrays between processes without copying them", "arraybridged");
  Declare(app, line, request);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    request.help = app.help();
    return request;
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(error.what());
  }
  if (request.print_version) {
    request.help = "arraybridged " ARRAYBRIDGE_VERSION "\n";
    return request;
  }
  Reading reading;
  AB_RETURN_IF_ERROR(ReadAll(line, reading));
  auto config = Resolve(reading, request.check_only);
  if (!config.ok()) return config.status();
  request.config = *std::move(config);
  request.said = reading.texts();
  request.origins = reading.origins();
  if (line.print) request.help = Printed(ValuesOf(request));
  return request;
}

namespace {

// Also those whose tables say the same as before and mean something else: a token's file, the members of the default.
void AdoptNamespaces(Config& config, const std::map<std::string, std::string>& said, ConfigRequest* running,
                     Reloaded* reloaded) {
  std::map<std::string, bool> differs;
  for (const auto& [name, policy] : config.namespaces) differs[name] = true;
  for (const auto& [name, policy] : running->config.namespaces) {
    const auto found = config.namespaces.find(name);
    differs[name] = found == config.namespaces.end() || found->second != policy;
  }
  for (const auto& [name, is_other] : differs) {
    if (is_other) reloaded->changed.push_back("namespace." + name);
  }
  running->config.namespaces = std::move(config.namespaces);
  std::erase_if(running->said, [](const auto& entry) { return SplitNamespaceKey(entry.first).has_value(); });
  for (const auto& [key, text] : said) {
    if (SplitNamespaceKey(key)) running->said[key] = text;
  }
}

// What another table says of a GPU than the one that was read at the start.
void KeepGpus(const std::map<std::string, std::string>& said, const ConfigRequest& running, Reloaded* reloaded) {
  std::map<std::string, bool> differs;
  for (const auto& [key, text] : running.said) {
    if (SplitGpuKey(key)) differs[key] = true;
  }
  for (const auto& [key, text] : said) {
    if (!SplitGpuKey(key)) continue;
    const auto before = running.said.find(key);
    differs[key] = before == running.said.end() || before->second != text;
  }
  for (const auto& [key, is_other] : differs) {
    if (is_other) reloaded->kept.push_back(key);
  }
}

// Where what holds was said: of what is kept, where it was said before.
void AdoptOrigins(std::map<std::string, std::string> origins, const Reloaded& reloaded, ConfigRequest* running) {
  for (const std::string& key : reloaded.kept) {
    const auto before = running->origins.find(key);
    origins.erase(key);
    if (before != running->origins.end()) origins.insert(*before);
  }
  running->origins = std::move(origins);
}

}  // namespace

std::vector<ConfigValue> ValuesOf(const ConfigRequest& request) {
  const auto origin_of = [&](const std::string& key) {
    const auto found = request.origins.find(key);
    return found == request.origins.end() ? std::string("default") : found->second;
  };
  std::vector<ConfigValue> values;
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kFlagOnly) continue;
    const auto said = request.said.find(setting.key);
    std::string text = said == request.said.end() ? setting.fallback : said->second;
    if (setting.show) text = setting.show(request.config);
    values.push_back({setting.key, std::move(text), origin_of(setting.key)});
  }
  for (const auto& [key, text] : request.said) {
    if (SplitGpuKey(key) || SplitNamespaceKey(key)) values.push_back({key, text, origin_of(key)});
  }
  return values;
}

Result<Reloaded> ReloadConfig(int argc, const char* const* argv, ConfigRequest* running) {
  ConfigRequest request;
  CommandLine line;
  CLI::App app("arraybridged", "arraybridged");
  Declare(app, line, request);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(error.what());
  }
  Reading reading;
  AB_RETURN_IF_ERROR(ReadAll(line, reading));
  // What is to spare now is no measure: this daemon has taken its part of it.
  reading.draft().host_capacity = running->config.host_capacity_bytes;
  auto config = Resolve(reading, false);
  if (!config.ok()) return config.status();
  const auto said = reading.texts();
  const auto text_of = [](const std::map<std::string, std::string>& texts, const Setting& setting) {
    const auto found = texts.find(setting.key);
    return found == texts.end() ? setting.fallback : found->second;
  };
  Reloaded reloaded;
  for (const Setting& setting : Settings()) {
    if (text_of(said, setting) == text_of(running->said, setting)) continue;
    if (!setting.adopt) {
      reloaded.kept.push_back(setting.key);
      continue;
    }
    setting.adopt(*config, running->config);
    running->said[setting.key] = text_of(said, setting);
    reloaded.changed.push_back(setting.key);
  }
  KeepGpus(said, *running, &reloaded);
  AdoptNamespaces(*config, said, running, &reloaded);
  AdoptOrigins(reading.origins(), reloaded, running);
  return reloaded;
}

}  // namespace arraybridge
