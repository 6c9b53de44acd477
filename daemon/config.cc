// Flags over environment over conf.d over the file over defaults. Each is read through the table of settings, in that
// order reversed, so that what is said later wins; where the winner stood is remembered for --print-config.
#include "daemon/config.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "daemon/config_access.h"
#include "daemon/config_file.h"
#include "daemon/config_listen.h"
#include "daemon/config_table.h"
#include "daemon/memory/memory_budget.h"
#include "proto/boundary/frame.h"

extern char** environ;

namespace arraybridge {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "ARRAYBRIDGED_";
constexpr char kListenPrefix[] = "unix://";
constexpr char kSystemFile[] = "/etc/arraybridge/arraybridged.toml";
constexpr char kSystemDirectory[] = "/run/arraybridge";
constexpr char kSystemHttp[] = "127.0.0.1:9464";
constexpr milliseconds kEmbeddedIdle{10000};

// What was said, and where: key -> text and origin.
struct Said {
  std::string text;
  std::string origin;
};

class Reading {
 public:
  // `where`: how an error names it.
  Status Take(const Setting& setting, std::string_view text, std::string where) {
    const Status read = setting.read(text, draft_);
    if (!read.ok()) return InvalidArgument(where, ": ", read.message());
    said_[setting.key] = {std::string(text), std::move(where)};
    return Ok();
  }

  Status TakeNamespace(const std::string& name, const NamespaceSetting& setting, const ConfigEntry& entry) {
    const Status read = setting.read(entry.text, draft_.namespaces[name]);
    if (!read.ok()) return InvalidArgument(entry.origin, ": ", read.message());
    said_[entry.key] = {entry.text, entry.origin};
    return Ok();
  }

  Draft& draft() { return draft_; }
  // Where the winner stood, to begin a message with.
  std::string Where(const std::string& key) const {
    const auto found = said_.find(key);
    return found == said_.end() ? std::string() : found->second.origin + ": ";
  }
  std::map<std::string, std::string> texts() const {
    std::map<std::string, std::string> texts;
    for (const auto& [key, said] : said_) texts.emplace(key, said.text);
    return texts;
  }
  std::map<std::string, std::string> origins() const {
    std::map<std::string, std::string> origins;
    for (const auto& [key, said] : said_) origins.emplace(key, said.origin);
    return origins;
  }

 private:
  Draft draft_;
  std::map<std::string, Said, std::less<>> said_;
};

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
    if (its != section) out += "\n[" + its + "]\n";
    section = its;
    std::string line = value.key.substr(its.empty() ? 0 : dot + 1) + " = " + Quoted(value.text);
    line.resize(std::max(line.size() + 1, kOriginColumn), ' ');
    out += line + "# " + value.origin + "\n";
  }
  return out;
}

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

Status ReadFile(const std::string& path, Reading& reading) {
  const auto entries = ReadConfigFile(path);
  if (!entries.ok()) return entries.status();
  for (const ConfigEntry& entry : *entries) {
    if (const auto its = SplitNamespaceKey(entry.key)) {
      AB_RETURN_IF_ERROR(ReadNamespaceEntry(its->first, its->second, entry, reading));
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

// The system's file is read if it is there; one that was named must be.
Status ReadFiles(const std::string& named, bool embedded, Reading& reading) {
  if (named.empty() && embedded) return Ok();
  const std::string path = named.empty() ? kSystemFile : named;
  const Status read = ReadFile(path, reading);
  if (read.code() == Code::kNotFound && named.empty()) return Ok();
  AB_RETURN_IF_ERROR(read);
  for (const std::string& drop_in : DropInsOf(path)) AB_RETURN_IF_ERROR(ReadFile(drop_in, reading));
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

std::string DefaultDirectory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // System users (below 1000) have no runtime directory of their own.
  const bool system = ::geteuid() < 1000;
  if (system || runtime == nullptr || *runtime == '\0') return kSystemDirectory;
  return std::string(runtime) + "/arraybridge";
}

Status ResolveDoor(std::string_view flag, const std::string& said, std::string fallback, std::string* path) {
  if (said == "off") return path->clear(), Ok();
  if (said.empty()) return *path = std::move(fallback), Ok();
  if (!said.starts_with(std::string(kListenPrefix) + "/")) {
    return InvalidArgument(flag, ": '", said, "' is neither unix:///path nor off");
  }
  return *path = said.substr(std::strlen(kListenPrefix)), Ok();
}

// Where it was said, or else the flag that could say it.
std::string WhereOr(const Reading& reading, const std::string& key, const char* flag) {
  const std::string where = reading.Where(key);
  return where.empty() ? std::string(flag) + ": " : where;
}

Status ResolveListen(Draft& draft, const Reading& reading) {
  const Status read = ReadListen(draft.listen, draft.config);
  return read.ok() ? Ok() : InvalidArgument(WhereOr(reading, "server.listen", "--listen"), read.message());
}

Status ResolveTls(const Config& config, const Reading& reading, bool checking) {
  const Status checked = CheckTls(config, checking);
  if (checked.ok() || checked.metadata().empty()) return checked;
  const std::string& setting = checked.metadata().front().second;
  const std::string where = setting == "server.listen" ? WhereOr(reading, setting, "--listen") : reading.Where(setting);
  return InvalidArgument(where, checked.message());
}

Status ResolvePaths(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  if (config.directory.empty()) config.directory = DefaultDirectory();
  if (config.directory.front() != '/') {
    return InvalidArgument("--directory: '", config.directory, "' is not an absolute path");
  }
  if (config.lifeline_path.empty()) config.lifeline_path = config.directory + "/lifeline.sock";
  AB_RETURN_IF_ERROR(ResolveListen(draft, reading));
  if (draft.admin.empty() && config.embedded) draft.admin = "off";
  AB_RETURN_IF_ERROR(ResolveDoor("--admin", draft.admin, config.directory + "/admin.sock", &config.admin_path));
  const std::pair<const char*, const std::string*> doors[] = {
      {"--lifeline", &config.lifeline_path}, {"--listen", &config.grpc_path}, {"--admin", &config.admin_path}};
  for (size_t one = 0; one < std::size(doors); ++one) {
    for (size_t other = 0; other < one; ++other) {
      if (doors[one].second->empty() || *doors[one].second != *doors[other].second) continue;
      return InvalidArgument(doors[one].first, " and ", doors[other].first, " name the same socket '",
                             *doors[one].second, "'");
    }
  }
  return Ok();
}

// Exact, and without overflow.
uint64_t PercentOf(uint64_t bytes, uint64_t percent) { return bytes / 100 * percent + bytes % 100 * percent / 100; }

Result<uint64_t> QuotaOf(const std::variant<uint64_t, Percent>& said, const Config& config, std::string_view where) {
  const auto* percent = std::get_if<Percent>(&said);
  if (percent == nullptr) return std::get<uint64_t>(said);
  if (percent->value == 0) return InvalidArgument(where, "0% would refuse everything");
  return PercentOf(config.host_capacity_bytes, percent->value);
}

Status ResolveMemory(Draft& draft) {
  Config& config = draft.config;
  const auto* percent = std::get_if<Percent>(&draft.host_capacity);
  config.host_capacity_bytes =
      percent != nullptr ? MemoryBudget(percent->value) : std::get<uint64_t>(draft.host_capacity);
  if (config.host_capacity_bytes == 0)
    return InvalidArgument("--host-capacity: no byte of host memory is left to serve");
  const auto quota = QuotaOf(draft.namespace_quota, config, "--namespace-quota: ");
  if (!quota.ok()) return quota.status();
  config.namespace_quota_bytes = *quota;
  return Ok();
}

// What a table does not say is said by the default's.
Status ResolveNamespaces(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  if (draft.namespaces.size() > config.limits.namespaces) {
    return InvalidArgument(draft.namespaces.size(), " namespaces have tables (limits.namespaces ",
                           config.limits.namespaces, ")");
  }
  for (auto& [name, said] : draft.namespaces) {
    if (name.size() > config.limits.name_bytes_max) {
      return InvalidArgument("[namespace.", name, "]: the name has ", name.size(), " bytes (limits.name_bytes_max ",
                             config.limits.name_bytes_max, ")");
    }
    NamespacePolicy policy{config.namespace_quota_bytes, config.share_lifetime, config.orphan_grace,
                           config.withdraw_on_exit, std::move(said.access)};
    if (said.quota) {
      const auto quota = QuotaOf(*said.quota, config, reading.Where("namespace." + name + ".quota"));
      if (!quota.ok()) return quota.status();
      policy.quota_bytes = *quota;
    }
    policy.share_lifetime = said.share_lifetime.value_or(policy.share_lifetime);
    policy.orphan_grace = said.orphan_grace.value_or(policy.orphan_grace);
    policy.withdraw_on_exit = said.withdraw_on_exit.value_or(policy.withdraw_on_exit);
    config.namespaces.emplace(name, std::move(policy));
  }
  return Ok();
}

// A limit of 0 would refuse everything, and nobody means that.
Status CheckLimits(const Limits& limits, const Reading& reading) {
  const auto at = [&reading](std::string_view name) { return reading.Where("limits." + std::string(name)); };
  const std::pair<const char*, uint64_t> positive[] = {
      {"sessions", limits.sessions},
      {"sessions_per_uid", limits.sessions_per_uid},
      {"leases_per_session", limits.leases_per_session},
      {"catalogue_shares", limits.catalogue_shares},
      {"arenas_per_session", limits.arenas_per_session},
      {"shares_per_namespace", limits.shares_per_namespace},
      {"namespaces", limits.namespaces},
      {"namespaces_per_uid", limits.namespaces_per_uid},
      {"arenas_per_uid", limits.arenas_per_uid},
      {"description_bytes_per_uid", limits.description_bytes_per_uid},
      {"name_bytes_max", limits.name_bytes_max},
      {"names_per_request", limits.names_per_request},
      {"arrays_per_share_max", limits.arrays_per_share_max},
      {"rank_max", limits.rank_max},
      {"spec_bytes_max", limits.spec_bytes_max},
      {"descriptors_in_flight_max", limits.descriptors_in_flight_max},
      {"descriptors_in_flight_per_uid", limits.descriptors_in_flight_per_uid},
      {"output_frames_max", limits.output_frames_max},
      {"output_bytes_max", limits.output_bytes_max},
      {"queued_requests_per_session", limits.queued_requests_per_session},
      {"grpc_streams_max", limits.grpc_streams_max},
      {"connections_per_uid", limits.connections_per_uid},
      {"tcp_connections", limits.tcp_connections},
      {"tcp_connections_per_address", limits.tcp_connections_per_address},
      {"tcp_connections_per_subject", limits.tcp_connections_per_subject},
      {"subjects", limits.subjects},
      {"subject_bytes_max", limits.subject_bytes_max},
      {"tcp_keepalive", static_cast<uint64_t>(limits.tcp_keepalive.count())},
      {"hello_timeout", static_cast<uint64_t>(limits.hello_timeout.count())},
      {"ticket_lifetime", static_cast<uint64_t>(limits.ticket_lifetime.get().count())},
  };
  for (const auto& [name, value] : positive) {
    if (value == 0) return InvalidArgument(at(name), "limit ", name, ": must be more than 0");
  }
  constexpr uint64_t kCatalogueSharesMax = (uint64_t{1} << 26) - 2;  // what a hold can name
  if (limits.catalogue_shares > kCatalogueSharesMax) {
    return InvalidArgument(at("catalogue_shares"), "limit catalogue_shares: ", limits.catalogue_shares,
                           " is more than ", kCatalogueSharesMax);
  }
  constexpr uint64_t kFrameBytesMin = 4096;
  if (limits.frame_bytes_max < kFrameBytesMin || limits.frame_bytes_max > kFrameBytesMax) {
    return InvalidArgument(at("frame_bytes_max"), "limit frame_bytes_max: ", limits.frame_bytes_max, " is not between ",
                           kFrameBytesMin, " and ", kFrameBytesMax);
  }
  return Ok();
}

// Of several daemons on a machine only the system's can have the well-known port.
void ResolveHttp(Draft& draft) {
  Config& config = draft.config;
  if (draft.http.empty()) draft.http = config.directory == kSystemDirectory && !config.embedded ? kSystemHttp : "off";
  config.http_listen = draft.http == "off" ? "" : draft.http;
}

Result<Config> Resolve(Reading& reading, bool checking) {
  Draft& draft = reading.draft();
  AB_RETURN_IF_ERROR(ResolvePaths(draft, reading));
  AB_RETURN_IF_ERROR(ResolveTls(draft.config, reading, checking));
  ResolveHttp(draft);
  if (draft.config.admins.empty()) draft.config.admins = DefaultAdmins();
  AB_RETURN_IF_ERROR(ResolveMemory(draft));
  AB_RETURN_IF_ERROR(CheckLimits(draft.config.limits, reading));
  AB_RETURN_IF_ERROR(ResolveNamespaces(draft, reading));
  draft.config.exit_when_idle = draft.exit_when_idle.value_or(draft.config.embedded ? kEmbeddedIdle : milliseconds(0));
  return std::move(draft.config);
}

// What the command line says, before any of it is believed.
struct CommandLine {
  std::map<std::string, std::string> given;  // flag -> text
  std::vector<std::string> limits;
  std::string file;
  bool embedded = false;
  bool print = false;
};

void Declare(CLI::App& app, CommandLine& line, ConfigRequest& request) {
  for (const Setting& setting : Settings()) {
    if (setting.flag.empty()) continue;
    if (setting.flag == "embedded") {
      app.add_flag("--embedded", line.embedded, setting.help);
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
                 std::string("the configuration file (default: ") + kSystemFile +
                     ", if it is there); then conf.d/*.toml beside it");
  app.add_flag("--version", request.print_version, "print the version and exit");
  app.add_flag("--check-config", request.check_only, "check the configuration and exit");
  app.add_flag("--print-config", line.print, "print what holds, as a file, with the origin of every value, and exit");
}

Status ReadAll(const CommandLine& line, Reading& reading) {
  AB_RETURN_IF_ERROR(ReadFiles(line.file, line.embedded, reading));
  AB_RETURN_IF_ERROR(ReadEnvironment(reading));
  if (line.embedded) reading.draft().config.embedded = true;
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
    if (SplitNamespaceKey(key)) values.push_back({key, text, origin_of(key)});
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
  AdoptNamespaces(*config, said, running, &reloaded);
  AdoptOrigins(reading.origins(), reloaded, running);
  return reloaded;
}

}  // namespace arraybridge
