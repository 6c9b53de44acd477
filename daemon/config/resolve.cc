// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/resolve.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "daemon/config/access_list.h"
#include "daemon/config/devices.h"
#include "daemon/config/listen.h"
#include "daemon/config/settings.h"
#include "daemon/memory/memory_budget.h"
#include "proto/boundary/environment.h"

namespace arraybridge::daemon {
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

// The listener unlinks each path before it binds it, so no two sockets may have the same path. The message begins with
// the origin of the key whose source is stronger.
Status CheckSockets(const Config& config, const Reading& reading) {
  const std::pair<std::string, std::string> sockets[] = {{"server.lifeline", config.lifeline_path},
                                                         {"server.listen", config.grpc_path},
                                                         {"server.admin", config.admin_path}};
  for (const auto& [key, path] : sockets) {
    for (const auto& [other, same] : sockets) {
      if (key == other || path.empty() || path != same) continue;
      if (reading.Of(key).strength < reading.Of(other).strength) continue;
      const std::string& origin = reading.Of(other).origin;
      return InvalidArgument(reading.Where(key), key, " names the same socket '", path, "' as ", other, " (",
                             origin.empty() ? "default" : origin, ")");
    }
  }
  return Ok();
}

Status ResolvePaths(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  if (config.directory.empty()) config.directory = DefaultDirectory();
  if (config.lifeline_path.empty()) config.lifeline_path = config.directory + "/lifeline.sock";
  config.grpc_path = draft.listen.value_or(config.directory + "/broker.sock");
  config.admin_path = draft.admin.value_or(config.embedded ? "" : config.directory + "/admin.sock");
  return CheckSockets(config, reading);
}

// Exact and without overflow: the remainder of the division is multiplied separately.
uint64_t PercentOf(uint64_t bytes, uint64_t percent) { return bytes / 100 * percent + bytes % 100 * percent / 100; }

constexpr uint64_t kAllDevices = 0;

Result<uint64_t> QuotaOf(const BytesOrPercent& quota, const Config& config, std::string_view where) {
  const auto* percent = std::get_if<Percent>(&quota);
  if (percent == nullptr) return std::get<uint64_t>(quota);
  if (percent->value == 0) return InvalidArgument(where, "0% would refuse everything");
  if (ServesHostMemory(config)) return PercentOf(config.host_capacity_bytes, percent->value);
  if (percent->value == 100) return kAllDevices;
  return InvalidArgument(where, percent->value,
                         "% is a share of host memory, which is not served (memory.devices): give bytes");
}

Status ResolveCapacity(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  const auto* percent = std::get_if<Percent>(&draft.host_capacity);
  config.host_capacity_bytes =
      percent != nullptr ? MemoryBudget(percent->value) : std::get<uint64_t>(draft.host_capacity);
  if (config.host_capacity_bytes == 0 && percent != nullptr && ::access("/proc/meminfo", R_OK) != 0) {
    return FailedPrecondition(
        "cannot start: the memory of the machine is unknown, because /proc/meminfo cannot be read: ",
        std::strerror(errno), ": mount /proc, as `mount -t proc proc /proc` does");
  }
  if (config.host_capacity_bytes == 0 && ServesHostMemory(config)) {
    return InvalidArgument(reading.Where("memory.host.capacity", "--host-capacity"),
                           "the machine has no host memory available to serve");
  }
  return Ok();
}

Status ResolveQuota(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  AB_ASSIGN_OR_RETURN(
      config.namespace_quota_bytes,
      QuotaOf(draft.namespace_quota, config, reading.Where("namespace.default.quota", "--namespace-quota")));
  return Ok();
}

Status ResolveDevices(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  const std::string where = reading.Where("memory.devices");
  const auto ordinal = std::ranges::find_if(config.devices, IsOrdinal);
  if (ordinal != config.devices.end() && !where.starts_with("--")) {
    return InvalidArgument(where, "'", *ordinal,
                           "' can mean another GPU in another process; name the GPU by its UUID, cuda:UUID");
  }
  const GpuTerms& usual = config.gpus.others;
  for (const auto& [uuid, own] : draft.gpus) {
    config.gpus.own[uuid] = {own.capacity_percent.value_or(usual.capacity_percent), own.kinds.value_or(usual.kinds)};
  }
  const Status checked = CheckDevices(config);
  return checked.ok() ? Ok() : InvalidArgument(where, checked.message());
}

// The origin of one of the keys in a namespace's table, as the beginning of a message.
std::string WhereOfTable(const std::string& name, const Reading& reading) {
  for (const auto& [key, given] : reading.given) {
    const auto split = SplitTableKey(key);
    if (split && split->of_namespace && split->table == name) return given.origin + ": ";
  }
  return {};
}

Status ResolveNamespace(const std::string& name, NamespaceDraft& own, Config& config, const Reading& reading) {
  if (name.size() > config.limits.name_bytes_max) {
    return InvalidArgument(WhereOfTable(name, reading), "[namespace.", name, "]: the name has ", name.size(),
                           " bytes (maximum ", config.limits.name_bytes_max, ")");
  }
  AB_ASSIGN_OR_RETURN(const auto quota, own.quota
                                            ? QuotaOf(*own.quota, config, reading.Where("namespace." + name + ".quota"))
                                            : config.namespace_quota_bytes.get());
  config.namespaces[name] = {quota, own.share_lifetime.value_or(config.share_lifetime),
                             own.orphan_grace.value_or(config.orphan_grace),
                             own.withdraw_on_exit.value_or(config.withdraw_on_exit), std::move(own.access)};
  return Ok();
}

Status ResolveNamespaces(Draft& draft, Reading& reading) {
  Config& config = draft.config;
  if (draft.namespaces.size() > config.limits.namespaces) {
    return InvalidArgument(reading.Where("limits.namespaces", "--limit namespaces"), draft.namespaces.size(),
                           " namespaces have tables (limits.namespaces ", config.limits.namespaces, ")");
  }
  for (auto& [name, own] : draft.namespaces) {
    const std::string table = "namespace." + name + ".";
    const Status resolved = reading.Doubts(table) ? Ok() : ResolveNamespace(name, own, config, reading);
    if (!resolved.ok()) reading.Refuse(table, resolved);
  }
  return Ok();
}

// Only the system's daemon listens on the well-known port by default, because a machine can run several daemons.
Status ResolveHttp(Draft& draft, const Reading& reading) {
  Config& config = draft.config;
  config.http_listen = draft.http.value_or(config.directory == kSystemDirectory && !config.embedded ? kSystemHttp : "");
  const Status local = draft.http_public ? Ok() : CheckHttpIsLocal(config.http_listen);
  return local.ok() ? Ok() : InvalidArgument(reading.Where("http.listen"), local.message());
}

}  // namespace

Result<Config> Resolve(Reading& reading) {
  Draft& draft = reading.draft;
  // Makes the values of `area`, unless one of its keys, or one of those that it `needs`, is refused: errors that only
  // follow from another error are not reported.
  const auto resolve = [&](const char* area, std::initializer_list<const char*> needs, auto how) {
    if (reading.Doubts(area)) return;
    if (std::ranges::any_of(needs, [&](const char* key) { return reading.Doubts(key); })) return;
    const Status resolved = how();
    if (!resolved.ok()) reading.Refuse(area, resolved);
  };
  resolve("server.listen", {"server.directory", "server.lifeline", "server.admin", "server.embedded"},
          [&] { return ResolvePaths(draft, reading); });
  resolve("http.", {"server.directory"}, [&] { return ResolveHttp(draft, reading); });
  if (draft.config.admins.empty()) draft.config.admins = DefaultAdmins();
  resolve("memory.host.capacity", {"memory.devices", "memory.backend"},
          [&] { return ResolveCapacity(draft, reading); });
  resolve("namespace.default.quota", {"memory.host.capacity", "memory.devices", "memory.backend"},
          [&] { return ResolveQuota(draft, reading); });
  resolve("memory.devices", {"memory.backend", "memory.cuda.", "memory.GPU-", "memory.MIG-"},
          [&] { return ResolveDevices(draft, reading); });
  resolve("limits.namespaces", {"memory.host.capacity", "memory.backend", "namespace.default.quota"},
          [&] { return ResolveNamespaces(draft, reading); });
  resolve("tiers.low", {"tiers.high"}, [&] { return draft.config.tiers.Check(reading.Where("tiers.low")); });
  AB_RETURN_IF_ERROR(reading.Refused());
  draft.config.exit_when_idle = draft.exit_when_idle.value_or(draft.config.embedded ? kEmbeddedIdle : milliseconds(0));
  return std::move(draft.config);
}

}  // namespace arraybridge::daemon
