// One table of settings: each has a flag, an environment variable and a reader, so that the two ways to say a thing
// cannot drift apart. Flags are read after the environment and so win.
#include "daemon/config.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "daemon/memory/memory_budget.h"
#include "daemon/quantity.h"
#include "proto/boundary/frame.h"

extern char** environ;

namespace arraybridge {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "ARRAYBRIDGED_";
constexpr char kListenPrefix[] = "unix://";
constexpr milliseconds kEmbeddedIdle{10000};

// What was said, before what depends on something else is known.
struct Draft {
  Config config;
  std::variant<uint64_t, Percent> host_capacity = Percent{50};
  std::variant<uint64_t, Percent> namespace_quota = Percent{100};
  std::string listen;  // empty: the default place
  std::optional<milliseconds> exit_when_idle;
};

using Reader = std::function<Status(std::string_view text, Draft& draft)>;

struct Setting {
  std::string flag;      // without dashes
  std::string variable;  // without the prefix; empty: what is loaded into the daemon is not its environment's to say
  std::string help;
  Reader read;
};

template <class T, class Parsed>
Status Store(Result<Parsed> parsed, T* place) {
  if (!parsed.ok()) return parsed.status();
  *place = *std::move(parsed);
  return Ok();
}

Status StoreText(std::string_view text, std::string* place) {
  *place = std::string(text);
  return Ok();
}

// dlopen would look for a bare name in places that the environment names.
Status StoreCudaDriver(std::string_view text, std::string* place) {
  if (text != "auto" && text != "none" && !text.starts_with('/')) {
    return InvalidArgument("'", text, "' is neither auto nor none nor an absolute path");
  }
  return StoreText(text, place);
}

Status StorePercent(std::string_view text, uint64_t* place) {
  const auto read = ReadBytesOrPercent(text);
  if (!read.ok()) return read.status();
  const auto* percent = std::get_if<Percent>(&*read);
  if (percent == nullptr || percent->value == 0) return InvalidArgument("'", text, "' is not 1% to 100%");
  *place = percent->value;
  return Ok();
}

Status StoreFd(std::string_view text, int* place) {
  const auto number = ReadNumber(text);
  if (!number.ok() || *number > 1u << 20) return InvalidArgument("'", text, "' is not a descriptor's number");
  *place = static_cast<int>(*number);
  return Ok();
}

Status StoreBool(std::string_view text, bool* place) {
  if (text == "true" || text == "1" || text == "auto") return *place = true, Ok();
  if (text == "false" || text == "0" || text == "never") return *place = false, Ok();
  return InvalidArgument("'", text, "' is neither true nor false");
}

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = {
      {"directory", "SERVER__DIRECTORY", "directory of the lock and the sockets",
       [](auto text, Draft& d) { return StoreText(text, &d.config.directory); }},
      {"lifeline", "SERVER__LIFELINE", "path of the local door's socket (default: <directory>/lifeline.sock)",
       [](auto text, Draft& d) { return StoreText(text, &d.config.lifeline_path); }},
      {"listen", "SERVER__LISTEN", "unix:///path of the gRPC door, or off (default: <directory>/broker.sock)",
       [](auto text, Draft& d) { return StoreText(text, &d.listen); }},
      {"embedded", "SERVER__EMBEDDED", "started by a client library: private directory, ends when idle",
       [](auto text, Draft& d) { return StoreBool(text, &d.config.embedded); }},
      {"exit-when-idle", "SERVER__EXIT_WHEN_IDLE", "end so long after the last session; 0s = never",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.exit_when_idle); }},
      {"drain-timeout", "SERVER__DRAIN_TIMEOUT", "how long running calls may take after SIGTERM",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.drain_timeout); }},
      {"ready-fd", "SERVER__READY_FD", "descriptor to write \"ready\" to once both doors are open",
       [](auto text, Draft& d) { return StoreFd(text, &d.config.ready_fd); }},
      {"life-fd", "SERVER__LIFE_FD", "descriptor whose end of file ends the daemon",
       [](auto text, Draft& d) { return StoreFd(text, &d.config.life_fd); }},
      {"host-capacity", "MEMORY__HOST__CAPACITY",
       "host memory to hand out, bytes or % of what the machine has to spare",
       [](auto text, Draft& d) { return Store(ReadBytesOrPercent(text), &d.host_capacity); }},
      {"hugepages", "MEMORY__HOST__HUGEPAGES", "auto (where the kernel allows them) or never",
       [](auto text, Draft& d) { return StoreBool(text, &d.config.huge_pages); }},
      {"cache", "MEMORY__HOST__CACHE", "bytes of fresh memory populated ahead of demand",
       [](auto text, Draft& d) { return Store(ReadBytes(text), &d.config.host_cache_bytes); }},
      {"cuda-driver", "", "auto (the system's, if there is one), none, or the path of a library",
       [](auto text, Draft& d) { return StoreCudaDriver(text, &d.config.cuda_driver); }},
      {"cuda-capacity", "MEMORY__CUDA__CAPACITY", "how much of each GPU's memory to hand out, in %",
       [](auto text, Draft& d) { return StorePercent(text, &d.config.cuda_capacity_percent); }},
      {"arena-idle", "MEMORY__HOST__ARENA_IDLE", "clients give back what they have not used for so long",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.arena_idle); }},
      {"own-arena", "MEMORY__HOST__OWN_ARENA", "arrays of at least so many bytes get an arena of their own",
       [](auto text, Draft& d) { return Store(ReadBytes(text), &d.config.own_arena_bytes_min); }},
      {"namespace-quota", "NAMESPACE__QUOTA", "bytes that one namespace may hold, or % of the capacity",
       [](auto text, Draft& d) { return Store(ReadBytesOrPercent(text), &d.namespace_quota); }},
      {"orphan-grace", "NAMESPACE__ORPHAN_GRACE", "an unnamed share outlives its maker by so long",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.orphan_grace); }},
      {"log-level", "LOG__LEVEL", "debug, info, warn, error, off",
       [](auto text, Draft& d) { return StoreText(text, &d.config.log_level); }},
      {"log-format", "LOG__FORMAT", "auto, text, json",
       [](auto text, Draft& d) { return StoreText(text, &d.config.log_format); }},
  };
  return settings;
}

// Limits have one flag for all (--limit NAME=VALUE) and a variable each.
const std::map<std::string, Reader, std::less<>>& LimitReaders() {
  const auto number = [](uint64_t Limits::*field) -> Reader {
    return [field](auto text, Draft& d) { return Store(ReadNumber(text), &(d.config.limits.*field)); };
  };
  const auto bytes = [](uint64_t Limits::*field) -> Reader {
    return [field](auto text, Draft& d) { return Store(ReadBytes(text), &(d.config.limits.*field)); };
  };
  const auto duration = [](milliseconds Limits::*field) -> Reader {
    return [field](auto text, Draft& d) { return Store(ReadDuration(text), &(d.config.limits.*field)); };
  };
  static const std::map<std::string, Reader, std::less<>> readers = {
      {"sessions", number(&Limits::sessions)},
      {"sessions_per_uid", number(&Limits::sessions_per_uid)},
      {"leases_per_session", number(&Limits::leases_per_session)},
      {"arenas_per_session", number(&Limits::arenas_per_session)},
      {"shares_per_namespace", number(&Limits::shares_per_namespace)},
      {"namespaces", number(&Limits::namespaces)},
      {"namespaces_per_uid", number(&Limits::namespaces_per_uid)},
      {"arenas_per_uid", number(&Limits::arenas_per_uid)},
      {"bytes_per_uid", bytes(&Limits::bytes_per_uid)},
      {"description_bytes_per_uid", bytes(&Limits::description_bytes_per_uid)},
      {"allocation_bytes_max", bytes(&Limits::allocation_bytes_max)},
      {"name_bytes_max", bytes(&Limits::name_bytes_max)},
      {"names_per_request", number(&Limits::names_per_request)},
      {"arrays_per_share_max", number(&Limits::arrays_per_share_max)},
      {"rank_max", number(&Limits::rank_max)},
      {"spec_bytes_max", bytes(&Limits::spec_bytes_max)},
      {"structure_bytes_max", bytes(&Limits::structure_bytes_max)},
      {"metadata_bytes_max", bytes(&Limits::metadata_bytes_max)},
      {"frame_bytes_max", bytes(&Limits::frame_bytes_max)},
      {"descriptors_in_flight_max", number(&Limits::descriptors_in_flight_max)},
      {"descriptors_in_flight_per_uid", number(&Limits::descriptors_in_flight_per_uid)},
      {"output_frames_max", number(&Limits::output_frames_max)},
      {"output_bytes_max", bytes(&Limits::output_bytes_max)},
      {"queued_requests_per_session", number(&Limits::queued_requests_per_session)},
      {"tickets_per_session_max", number(&Limits::tickets_per_session_max)},
      {"grpc_streams_max", number(&Limits::grpc_streams_max)},
      {"connections_per_uid", number(&Limits::connections_per_uid)},
      {"hello_timeout", duration(&Limits::hello_timeout)},
      {"ticket_lifetime", duration(&Limits::ticket_lifetime)},
      {"request_timeout_max", duration(&Limits::request_timeout_max)},
  };
  return readers;
}

Status Named(std::string_view name, const Status& status) {
  if (status.ok()) return status;
  return InvalidArgument(name, ": ", status.message());
}

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

Status ReadVariable(std::string_view name, std::string_view value, Draft& draft) {
  const std::string_view key = name.substr(kPrefix.size());
  for (const Setting& setting : Settings()) {
    if (!key.empty() && setting.variable == key) return Named(name, setting.read(value, draft));
  }
  for (const auto& [limit, read] : LimitReaders()) {
    if ("LIMITS__" + UpperCase(limit) == key) return Named(name, read(value, draft));
  }
  return InvalidArgument("the environment variable ", name, " is unknown");
}

Status ReadEnvironment(Draft& draft) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(kPrefix)) continue;
    const size_t equals = std::min(text.find('='), text.size());
    AB_RETURN_IF_ERROR(ReadVariable(text.substr(0, equals), text.substr(std::min(equals + 1, text.size())), draft));
  }
  return Ok();
}

Status ReadLimitFlag(std::string_view text, Draft& draft) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return InvalidArgument("--limit '", text, "' is not NAME=VALUE");
  const auto found = LimitReaders().find(text.substr(0, equals));
  if (found == LimitReaders().end()) return InvalidArgument("--limit: '", text.substr(0, equals), "' is no limit");
  return Named("--limit " + found->first, found->second(text.substr(equals + 1), draft));
}

std::string DefaultDirectory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // System users (below 1000) have no runtime directory of their own.
  const bool system = ::geteuid() < 1000;
  if (system || runtime == nullptr || *runtime == '\0') return "/run/arraybridge";
  return std::string(runtime) + "/arraybridge";
}

Status ResolvePaths(Draft& draft) {
  Config& config = draft.config;
  if (config.directory.empty()) config.directory = DefaultDirectory();
  if (config.directory.front() != '/') {
    return InvalidArgument("--directory: '", config.directory, "' is not an absolute path");
  }
  if (config.lifeline_path.empty()) config.lifeline_path = config.directory + "/lifeline.sock";
  if (draft.listen == "off") return config.grpc_path.clear(), Ok();
  if (draft.listen.empty()) return config.grpc_path = config.directory + "/broker.sock", Ok();
  if (!draft.listen.starts_with(std::string(kListenPrefix) + "/")) {
    return InvalidArgument("--listen: '", draft.listen, "' is neither unix:///path nor off");
  }
  config.grpc_path = draft.listen.substr(std::strlen(kListenPrefix));
  if (config.grpc_path == config.lifeline_path) {
    return InvalidArgument("--listen and --lifeline name the same socket '", config.grpc_path, "'");
  }
  return Ok();
}

// Exact, and without overflow.
uint64_t PercentOf(uint64_t bytes, uint64_t percent) { return bytes / 100 * percent + bytes % 100 * percent / 100; }

Status ResolveMemory(Draft& draft) {
  Config& config = draft.config;
  const auto* percent = std::get_if<Percent>(&draft.host_capacity);
  config.host_capacity_bytes =
      percent != nullptr ? MemoryBudget(percent->value) : std::get<uint64_t>(draft.host_capacity);
  if (config.host_capacity_bytes == 0)
    return InvalidArgument("--host-capacity: no byte of host memory is left to serve");
  const auto* share = std::get_if<Percent>(&draft.namespace_quota);
  if (share != nullptr && share->value == 0) return InvalidArgument("--namespace-quota: 0% would refuse everything");
  config.namespace_quota_bytes = share != nullptr ? PercentOf(config.host_capacity_bytes, share->value)
                                                  : std::get<uint64_t>(draft.namespace_quota);
  return Ok();
}

// A limit of 0 would refuse everything, and nobody means that.
Status CheckLimits(const Limits& limits) {
  const std::pair<const char*, uint64_t> positive[] = {
      {"sessions", limits.sessions},
      {"sessions_per_uid", limits.sessions_per_uid},
      {"leases_per_session", limits.leases_per_session},
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
      {"hello_timeout", static_cast<uint64_t>(limits.hello_timeout.count())},
      {"ticket_lifetime", static_cast<uint64_t>(limits.ticket_lifetime.count())},
  };
  for (const auto& [name, value] : positive) {
    if (value == 0) return InvalidArgument("limit ", name, ": must be more than 0");
  }
  constexpr uint64_t kFrameBytesMin = 4096;
  if (limits.frame_bytes_max < kFrameBytesMin || limits.frame_bytes_max > kFrameBytesMax) {
    return InvalidArgument("limit frame_bytes_max: ", limits.frame_bytes_max, " is not between ", kFrameBytesMin,
                           " and ", kFrameBytesMax);
  }
  return Ok();
}

Result<Config> Resolve(Draft draft) {
  AB_RETURN_IF_ERROR(ResolvePaths(draft));
  AB_RETURN_IF_ERROR(ResolveMemory(draft));
  AB_RETURN_IF_ERROR(CheckLimits(draft.config.limits));
  draft.config.exit_when_idle = draft.exit_when_idle.value_or(draft.config.embedded ? kEmbeddedIdle : milliseconds(0));
  return std::move(draft.config);
}

}  // namespace

Result<ConfigRequest> LoadConfig(int argc, const char* const* argv) {
  ConfigRequest request;
  std::map<std::string, std::string> given;  // flag -> text
  std::vector<std::string> limits;
  bool embedded = false;
  CLI::App app("arraybridged: shares arrays between processes without copying them", "arraybridged");
  for (const Setting& setting : Settings()) {
    if (setting.flag == "embedded") {
      app.add_flag("--embedded", embedded, setting.help);
      continue;
    }
    app.add_option_function<std::string>(
        "--" + setting.flag, [&given, flag = setting.flag](const std::string& text) { given[flag] = text; },
        setting.help);
  }
  app.add_option("--limit", limits, "NAME=VALUE: one of the named limits; may be repeated")->allow_extra_args(false);
  app.add_flag("--version", request.print_version, "print the version and exit");
  app.add_flag("--check-config", request.check_only, "check the configuration and exit");
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

  Draft draft;
  AB_RETURN_IF_ERROR(ReadEnvironment(draft));
  if (embedded) draft.config.embedded = true;
  for (const Setting& setting : Settings()) {
    const auto found = given.find(setting.flag);
    if (found != given.end()) AB_RETURN_IF_ERROR(Named("--" + setting.flag, setting.read(found->second, draft)));
  }
  for (const std::string& limit : limits) AB_RETURN_IF_ERROR(ReadLimitFlag(limit, draft));
  auto config = Resolve(std::move(draft));
  if (!config.ok()) return config.status();
  request.config = *std::move(config);
  return request;
}

}  // namespace arraybridge
