// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/load.h"

#include <CLI/CLI.hpp>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "daemon/config/print.h"
#include "daemon/config/removed.h"
#include "daemon/config/resolve.h"
#include "daemon/config/settings.h"
#include "proto/boundary/nearest.h"

namespace arraybridge::daemon {
namespace {

// The command line before its values are checked.
struct CommandLine {
  std::map<std::string, std::string> texts;  // by flag
  std::vector<std::string> limits;
  std::string file;
  std::string reference;
  std::string help;
  bool keeper = false;  // main has read it: the keeper starts this program without it
  bool version = false;
  bool check = false;
  bool print = false;
};

void DeclareFlag(CLI::App& app, const Setting& setting, std::map<std::string, std::string>& texts) {
  const std::string name = "--" + setting.flag;
  if (setting.value.is_switch) {
    const auto take = [&texts, &setting](int64_t count) { texts[setting.flag] = count > 0 ? "true" : "false"; };
    app.add_flag_function(name, take, setting.help);
    return;
  }
  if (setting.value.is_list) {
    const auto take = [&texts, &setting](const std::vector<std::string>& entries) {
      std::string& all = texts[setting.flag];
      for (const std::string& entry : entries) all += (all.empty() ? "" : ",") + entry;
    };
    app.add_option_function<std::vector<std::string>>(name, take, setting.help)->allow_extra_args(false);
    return;
  }
  const auto take = [&texts, &setting](const std::string& text) { texts[setting.flag] = text; };
  app.add_option_function<std::string>(name, take, setting.help);
}

// Why this version does not have the first unknown flag, or the flag that is nearest to it, as the end of a message.
std::string GuessAtFlag(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with("--")) continue;
    const std::string flag = word.substr(0, word.find('='));
    if (const auto why = WhyRemoved(flag); !why.empty()) return Concat(": it ", why);
    const std::string guess = Nearest(flag, flags, EditsOf(flag));
    return guess.empty() ? "" : Concat(": did you mean ", guess, "?");
  }
  return {};
}

Result<CommandLine> ReadCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app("arraybridged: shares arrays between processes without copying them", "arraybridged");
  for (const Setting& setting : Settings()) {
    if (!setting.flag.empty()) DeclareFlag(app, setting, line.texts);
  }
  app.add_option("--limit", line.limits, "NAME=VALUE: one of the named limits; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--config", line.file,
                 std::string("the configuration file (default: ") + kSystemConfigFile +
                     ", if it is there); then conf.d/*.toml beside it");
  app.add_flag("--keeper", line.keeper,
               "hold the memory in a parent process, which starts the daemon anew when it has died");
  app.add_flag("--version", line.version, "print the version and exit");
  app.add_flag("--check-config", line.check, "check the configuration and exit");
  app.add_flag("--print-config", line.print, "print the values in force as a file, with the origin of each, and exit");
  app.add_option("--print-reference", line.reference,
                 "print all settings with their defaults as a file (toml) or as keys of arraybridged.toml(5) (man), "
                 "and exit")
      ->check(CLI::IsMember({"toml", "man"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
  } catch (const CLI::ExtrasError& error) {
    return InvalidArgument(error.what(), GuessAtFlag(app));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(error.what());
  }
  return line;
}

void ReadSources(const CommandLine& line, Reading& reading) {
  const auto embedded = line.texts.find("embedded");
  ReadFiles(line.file, embedded != line.texts.end() && embedded->second == "true", reading);
  ReadEnvironment(reading);
  for (const Setting& setting : Settings()) {
    const auto found = line.texts.find(setting.flag);
    if (found == line.texts.end()) continue;
    reading.Take(setting, setting.key, "", found->second, "--" + setting.flag);
  }
  for (const std::string& limit : line.limits) ReadLimitFlag(limit, reading);
}

bool IsSameText(const std::string& key, const GivenByKey& one, const GivenByKey& other, const std::string& fallback) {
  const auto text_of = [&](const GivenByKey& given) {
    const auto found = given.find(key);
    return found == given.end() ? fallback : found->second.text;
  };
  return text_of(one) == text_of(other);
}

// The meaning of a table can change although its text does not: a token's file, or the values of [namespace.default].
void AdoptNamespaces(NamespacePolicies policies, Config& running, Reloaded& reloaded) {
  std::set<std::string> names;
  for (const auto* some : {&policies, &running.namespaces}) {
    for (const auto& [name, policy] : *some) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto before = running.namespaces.find(name);
    const auto after = policies.find(name);
    const bool is_in_both = before != running.namespaces.end() && after != policies.end();
    if (!is_in_both || before->second != after->second) reloaded.changed.push_back("namespace." + name);
  }
  running.namespaces = std::move(policies);
}

// Tables of GPUs hold until a restart.
void KeepGpus(const GivenByKey& given, const GivenByKey& running, Reloaded& reloaded) {
  std::set<std::string> keys;
  for (const auto* some : {&given, &running}) {
    for (const auto& [key, text] : *some) {
      const auto split = SplitTableKey(key);
      if (split && !split->of_namespace && !IsSameText(key, given, running, "")) keys.insert(key);
    }
  }
  reloaded.kept.insert(reloaded.kept.end(), keys.begin(), keys.end());
}

// A key whose value is kept also keeps its text and its origin.
void AdoptTexts(GivenByKey given, const Reloaded& reloaded, GivenByKey& running) {
  for (const std::string& key : reloaded.kept) {
    given.erase(key);
    if (auto before = running.extract(key)) given.insert(std::move(before));
  }
  running = std::move(given);
}

}  // namespace

Result<ConfigRequest> LoadConfig(int argc, const char* const* argv) {
  AB_ASSIGN_OR_RETURN(const auto line, ReadCommandLine(argc, argv));
  ConfigRequest request;
  request.check_only = line.check;
  request.output = line.help;
  if (line.version) request.output = "arraybridged " ARRAYBRIDGE_VERSION "\n";
  if (!line.reference.empty()) request.output = line.reference == "toml" ? ExampleFile() : ManualKeys();
  if (!request.output.empty()) return request;
  Reading reading;
  ReadSources(line, reading);
  AB_ASSIGN_OR_RETURN(auto config, Resolve(reading));
  request.config = std::move(config);
  request.given = std::move(reading.given);
  if (line.print) request.output = PrintedValues(ValuesOf(request.config, request.given));
  return request;
}

Result<Reloaded> ReloadConfig(int argc, const char* const* argv, ConfigRequest* running) {
  AB_ASSIGN_OR_RETURN(const auto line, ReadCommandLine(argc, argv));
  Reading reading;
  ReadSources(line, reading);
  // Keeps the capacity in bytes: a percentage of the memory that is available now would leave out what this daemon
  // uses.
  reading.draft.host_capacity = running->config.host_capacity_bytes;
  AB_ASSIGN_OR_RETURN(auto config, Resolve(reading));
  Reloaded reloaded;
  for (const Setting& setting : Settings()) {
    if (IsSameText(setting.key, reading.given, running->given, setting.value.fallback)) continue;
    (setting.value.reloads ? reloaded.changed : reloaded.kept).push_back(setting.key);
    if (setting.value.reloads) setting.value.adopt(config, running->config);
  }
  KeepGpus(reading.given, running->given, reloaded);
  AdoptNamespaces(std::move(config.namespaces), running->config, reloaded);
  AdoptTexts(std::move(reading.given), reloaded, running->given);
  return reloaded;
}

}  // namespace arraybridge::daemon
