#include "daemon/config/resolve.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/config/access_list.h"
#include "daemon/config/devices.h"
#include "daemon/config/listen.h"
#include "daemon/memory/memory_budget.h"
#include "proto/boundary/environment.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;

constexpr char kSystemDirectory[] = "/run/arraybridge";
constexpr char kSystemHttp[] = "127.0.0.1:9464";
constexpr milliseconds kEmbeddedIdle{10000};

std::string DefaultDirectory() {
  const std::string runtime = RuntimeDirectory();
  // System users (below 1000) have no runtime directory of their own.
  const bool system = ::geteuid() < 1000;
  if (system || runtime.empty()) return kSystemDirectory;
  return runtime + "/arraybridge";
}

// Where it was said, or else the flag that could say it, to begin a message with.
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
  if (checked.ok()) return Ok();
  const std::string& setting = checked.metadata().front().second;
  const std::string where = setting == "server.listen" ? WhereOr(reading, setting, "--listen") : reading.Where(setting);
  return InvalidArgument(where, checked.message());
}

// Each of them is unlinked and bound. What was read later is named first: it was said over the other.
Status CheckSockets(const Config& config, const Reading& reading) {
  struct Socket {
    const char* key;
    const std::string& path;
  };
  const Socket sockets[] = {{"server.lifeline", config.lifeline_path},
                            {"server.listen", config.grpc_path},
                            {"server.admin", config.admin_path}};
  for (const Socket& one : sockets) {
    for (const Socket& other : sockets) {
      if (&one == &other || one.path.empty() || one.path != other.path) continue;
      if (reading.StrengthOf(one.key) < reading.StrengthOf(other.key)) continue;
      const std::string origin = reading.OriginOf(other.key);
      return InvalidArgument(reading.Where(one.key), one.key, " names the same socket '", one.path, "' as ", other.key,
                             " (", origin.empty() ? "default" : origin, ")");
    }
  }
  return Ok();
}

Status ResolvePaths(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  if (config.directory.empty()) config.directory = DefaultDirectory();
  if (config.lifeline_path.empty()) config.lifeline_path = config.directory + "/lifeline.sock";
  AB_RETURN_IF_ERROR(ResolveListen(draft, reading));
  config.admin_path = draft.admin.value_or(config.embedded ? "" : config.directory + "/admin.sock");
  return CheckSockets(config, reading);
}

// Exact, and without overflow.
uint64_t PercentOf(uint64_t bytes, uint64_t percent) { return bytes / 100 * percent + bytes % 100 * percent / 100; }

constexpr uint64_t kAllDevices = 0;

Result<uint64_t> QuotaOf(const std::variant<uint64_t, Percent>& said, const Config& config, std::string_view where) {
  const auto* percent = std::get_if<Percent>(&said);
  if (percent == nullptr) return std::get<uint64_t>(said);
  if (percent->value == 0) return InvalidArgument(where, "0% would refuse everything");
  if (!ServesHostMemory(config)) {
    if (percent->value == 100) return kAllDevices;
    return InvalidArgument(where, percent->value,
                           "% is of host memory, which is not served (memory.devices): say bytes");
  }
  return PercentOf(config.host_capacity_bytes, percent->value);
}

Status ResolveMemory(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  const auto* percent = std::get_if<Percent>(&draft.host_capacity);
  config.host_capacity_bytes =
      percent != nullptr ? MemoryBudget(percent->value) : std::get<uint64_t>(draft.host_capacity);
  if (config.host_capacity_bytes == 0 && ServesHostMemory(config))
    return InvalidArgument(WhereOr(reading, "memory.host.capacity", "--host-capacity"),
                           "no byte of host memory is left to serve");
  const auto quota =
      QuotaOf(draft.namespace_quota, config, WhereOr(reading, "namespace.default.quota", "--namespace-quota"));
  if (!quota.ok()) return quota.status();
  config.namespace_quota_bytes = *quota;
  return Ok();
}

Status ResolveDevices(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  const std::string where = reading.Where("memory.devices");
  const auto ordinal = std::ranges::find_if(config.devices, IsOrdinal);
  if (ordinal != config.devices.end() && !where.starts_with("--")) {
    return InvalidArgument(where, "'", *ordinal, "' is another GPU in another process; name it by its UUID, cuda:UUID");
  }
  for (const auto& [uuid, said] : draft.gpus) config.gpus.own.emplace(uuid, said.Over(config.gpus.others));
  const Status checked = CheckDevices(config);
  return checked.ok() ? Ok() : InvalidArgument(where, checked.message());
}

// What a table does not say is said by the default's.
Status ResolveNamespaces(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  if (draft.namespaces.size() > config.limits.namespaces) {
    return InvalidArgument(WhereOr(reading, "limits.namespaces", "--limit namespaces"), draft.namespaces.size(),
                           " namespaces have tables (limits.namespaces ", config.limits.namespaces, ")");
  }
  for (auto& [name, said] : draft.namespaces) {
    if (name.size() > config.limits.name_bytes_max) {
      return InvalidArgument(reading.WhereOfNamespace(name), "[namespace.", name, "]: the name has ", name.size(),
                             " bytes (limits.name_bytes_max ", config.limits.name_bytes_max, ")");
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
      {"leases_per_uid", limits.leases_per_uid},
      {"shares_per_uid", limits.shares_per_uid},
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
      {"queued_requests_per_uid", limits.queued_requests_per_uid},
      {"queued_bytes_per_uid", limits.queued_bytes_per_uid},
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
Status ResolveHttp(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  config.http_listen = draft.http.value_or(config.directory == kSystemDirectory && !config.embedded ? kSystemHttp : "");
  const Status local = draft.http_public ? Ok() : CheckHttpIsLocal(config.http_listen);
  return local.ok() ? Ok() : InvalidArgument(reading.Where("http.listen"), local.message());
}

}  // namespace

Result<Config> Resolve(Reading& reading, bool checking) {
  Draft& draft = reading.draft();
  AB_RETURN_IF_ERROR(ResolvePaths(draft, reading));
  AB_RETURN_IF_ERROR(ResolveTls(draft.config, reading, checking));
  AB_RETURN_IF_ERROR(ResolveHttp(draft, reading));
  if (draft.config.admins.empty()) draft.config.admins = DefaultAdmins();
  AB_RETURN_IF_ERROR(ResolveMemory(draft, reading));
  AB_RETURN_IF_ERROR(ResolveDevices(draft, reading));
  AB_RETURN_IF_ERROR(CheckLimits(draft.config.limits, reading));
  AB_RETURN_IF_ERROR(ResolveNamespaces(draft, reading));
  draft.config.exit_when_idle = draft.exit_when_idle.value_or(draft.config.embedded ? kEmbeddedIdle : milliseconds(0));
  return std::move(draft.config);
}

}  // namespace arraybridge
